"""A service: what it accepts and takes in, and the process that schedules it."""
