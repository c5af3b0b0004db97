"""What tests and benchmarks start for themselves: Docker daemons, and ways to them.

It is no part of what is installed. `dockerd` starts a daemon of one's own, in namespaces of its
own; `endpoints` are the ways to one that is on another machine.
"""
