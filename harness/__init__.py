"""Servers that tests and benchmarks start: Docker daemons, endpoints, Postgres, `shockwave up`.

Not part of the installed package. `dockerd` starts a private daemon in its own namespaces;
`endpoints` are the ways to a daemon on another machine.
"""
