"""From estimates and a budget to a plan: Estimate, Plan, Frontier, Planner."""
