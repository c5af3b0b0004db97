"""The commands, by what they are about, and what they print.

Heavy imports wait until a command needs them.
"""
