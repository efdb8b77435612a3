"""Exploring: what a dashboard asks of an estimate, answered by ordinary calls of the solver."""
