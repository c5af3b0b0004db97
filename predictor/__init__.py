"""Jobs: what is declared, what is observed, and the forecast of the work that remains.

Owns the vocabulary of jobs (`JobSpec`, `Regime`, `EpochReport`), the throughput
`Profile`, the `Belief` about a job and the `Forecast` drawn from it. Imports nothing
of clusters, policies, storage or the round.
"""
