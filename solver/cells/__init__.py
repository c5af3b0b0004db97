"""Guarantees to tenants that hold by construction: cells of GPUs, allocated by buddies.

A tenant is promised *cells*: whole GPUs, nodes, racks, with their shape. Whatever other tenants
do, it can have them: by HiveD (Zhao et al., OSDI '20). The room knows neither the market nor the
round; `docs/guarantees.md` says how it works and what it guarantees.
"""
