"""Who gets which GPUs: the market, its back ends, the timetable and the policies.

Pure: frozen dataclasses and arrays in, new ones out. Knows nothing of containers,
storage or the round.
"""
