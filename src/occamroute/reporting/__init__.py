"""Results for people: pages that stand alone."""
