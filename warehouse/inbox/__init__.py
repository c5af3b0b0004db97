"""The inbox of a service: a database of the jobs and commands that it accepted, each an entry.

An accepted entry is durable. Entries are numbered from 1 without gaps, in the order of their
commits, and never changed or removed. The service's records say how many it has taken in.
"""
