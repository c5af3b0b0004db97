"""Questions and commands to a service, and its answers."""
