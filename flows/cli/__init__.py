"""The commands of the command line, grouped by topic, and their output.

Heavy imports are deferred until a command needs them.
"""
