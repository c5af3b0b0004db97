"""A service over HTTP: its API, and the live page."""
