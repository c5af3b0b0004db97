"""Questions to recorded runs: why a job waits, what if something were different, replay."""
