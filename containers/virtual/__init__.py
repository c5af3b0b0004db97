"""Jobs on a virtual clock, driven by their ground truth.

They run as in the published simulator, or as in containers.
"""
