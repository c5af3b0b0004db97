"""The window problem of the paper (Shockwave, NSDI '23): rounds for each job of a whole window.

`market` states it, `counts` solves it for the rounds of each job, `timetable` lays the counts out
in time, and `published` implements the published policy's versions.
"""
