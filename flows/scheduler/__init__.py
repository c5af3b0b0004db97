"""A service: admission of jobs and commands, and the process that schedules it."""
