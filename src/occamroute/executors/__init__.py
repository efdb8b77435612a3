"""Run a function over blocks of queries."""
