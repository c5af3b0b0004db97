"""What users start: runs, comparisons, replays, and the command line."""
