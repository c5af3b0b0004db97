"""The scheduler of a service: admission of jobs and commands, leadership, rounds."""
