"""Jobs on a virtual clock, driven by their ground truth."""
