"""What the service answers, a family of endpoints a file."""
