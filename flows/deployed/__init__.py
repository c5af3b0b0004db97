"""What can be started from Prefect's UI."""
