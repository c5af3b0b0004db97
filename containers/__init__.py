"""Where jobs run: the `Runtime` protocol, and the virtual clock and Docker hosts behind it.

Knows nothing of storage or of the round.
"""
