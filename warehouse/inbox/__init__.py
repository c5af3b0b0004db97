"""The inbox of a service: jobs and commands from outside, in a database, each an entry.

Accepted means durable: an entry is returned once it is committed and on disk. Entries are numbered
from 1 without gaps, in the order of their commits. Nothing is ever changed or removed; how far a
service has come is in its records.
"""
