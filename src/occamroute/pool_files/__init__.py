"""Pools written down: the file ``occamroute.toml``."""
