"""Deciding about one query at a time, and watching whether what decisions rest on still holds."""
