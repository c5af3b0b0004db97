"""Guarantees to tenants by construction: cells of GPUs, allocated by buddies.

A tenant is promised *cells*: whole GPUs, nodes, racks, with their shape. It can have them whatever
other tenants do (HiveD; Zhao et al., OSDI '20). The package depends neither on the market nor on
the round; `docs/guarantees.md` explains how it works and what it guarantees.
"""
