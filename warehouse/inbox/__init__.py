"""The inbox of a service: a database of the jobs and commands that it accepted, each an entry.

An accepted entry is durable. Entries are numbered from 1 without gaps, in commit order, and are
never changed or removed. The service's records state how many entries it has taken in.
"""
