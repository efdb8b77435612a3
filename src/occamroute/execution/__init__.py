"""Buy the answers that a plan asks for, within a hard budget."""
