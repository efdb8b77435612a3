"""Calls that may cost money: reserved before, settled after, written down in between."""
