"""The service: a router, and the classifiers behind it, over HTTP."""
