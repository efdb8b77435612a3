"""``python -m occamroute``."""

from occamroute.cli import main

main()
