"""Dashboard: one page, and what it asks for; served by a service, or by itself for a file."""
