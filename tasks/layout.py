"""The layout of records; apart from them, since queries read it without NumPy."""

VERSION = 4
"""Layout of the records, raised with any change of their fields. Records of another layout are
refused."""
