"""The window problem of the paper (Shockwave, NSDI '23): rounds for every job of a whole window.

`market` states it, `counts` solves it for the number of rounds of each job, `timetable` lays the
counts out in time, and `published` has what the published policy does in their place.
"""
