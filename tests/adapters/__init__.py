"""Tests of the adapters, each with a real model or a real server."""
