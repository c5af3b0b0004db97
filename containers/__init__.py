"""Where jobs run: the `Runtime` protocol, implemented on a virtual clock and on Docker hosts.

Knows nothing of storage or of the round.
"""
