"""Questions to recorded runs: why, what if, replay."""
