"""What plans really reach, on queries whose success is known."""
