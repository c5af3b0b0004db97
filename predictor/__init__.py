"""What a job is, what was seen of it, and what it is expected to do next.

Owns the vocabulary of jobs (`JobSpec`, `Regime`, `EpochReport`), the throughput
`Profile`, the `Belief` held about a job and the `Forecast` drawn from it. Knows
nothing of clusters, policies, storage or the round.
"""
