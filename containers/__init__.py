"""Where jobs run: the `Runtime` protocol and the virtual cluster that implements it.

Knows nothing of storage or of the round.
"""
