"""Jobs on a virtual clock, driven by their ground truth.

As the published simulator runs them, or as containers would.
"""
