"""The virtual cluster against the published simulator, under a policy without a solver.

Gandiva-Fair as the published simulator runs it depends on nothing but the simulator's
semantics: every job has the share min(1, G / N) of the time, recomputed when jobs came
or went and 1,000 s have passed; a job admitted since then has no share, and if it is
picked its GPUs idle. So its figures test rounds, restarts, batch-size changes and
completions together.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from containers.runtime import Launch
from containers.virtual import VirtualCluster
from predictor.job import JobSpec
from warehouse.trace import read_workload
from warehouse.workload import Workload

RECOMPUTE_SECONDS = 1000.0
INITIAL_SECONDS = 60.0


@dataclass
class GandivaFair:
    """Shares, and the time received since they were computed."""

    gpus: int
    share: dict[int, float] = field(default_factory=dict)
    received: defaultdict[int, float] = field(
        default_factory=lambda: defaultdict(lambda: INITIAL_SECONDS)
    )
    deficit: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    computed_at: float | None = None

    def pick(
        self, clock: float, active: dict[int, JobSpec], changed: bool
    ) -> tuple[list[int], bool]:
        """Jobs picked that have a share, and whether shares are still to be recomputed."""
        due = not self.computed_at or clock - self.computed_at >= RECOMPUTE_SECONDS
        if changed and due:
            for job, share in self.share.items():
                given = self.received[job] - INITIAL_SECONDS
                self.deficit[job] += share * (clock - (self.computed_at or 0.0)) - given
            self.share = dict.fromkeys(active, min(1.0, self.gpus / len(active)))
            self.received.clear()
            self.computed_at, changed = clock, False
        order = sorted(
            active,
            key=lambda job: (
                -self.share.get(job, 0.0) / self.received[job],
                -self.deficit[job],
                -self.share.get(job, 0.0),
                job,
            ),
        )
        free, picked = self.gpus, []
        for job in order:
            if active[job].scale_factor <= free:
                free -= active[job].scale_factor
                picked.append(job)
        return [job for job in picked if job in self.share], changed


def run(workload: Workload, gpus: int) -> dict[str, float]:
    cluster = VirtualCluster(
        workload.specs, workload.truths, workload.profile, round_seconds=120, restart_seconds=20
    )
    policy, coming = GandivaFair(gpus), list(workload.specs)
    active: dict[int, JobSpec] = {}
    ran: defaultdict[int, float] = defaultdict(float)
    jct: dict[int, float] = {}
    leased: set[int] = set()
    rounds, changed = 0, False
    while True:
        seen = cluster.observe()
        for entry in seen.progress:
            policy.received[entry.job_id] += entry.run_seconds - ran[entry.job_id]
            ran[entry.job_id] = entry.run_seconds
        for event in seen.finished:
            jct[event.job_id] = event.at_seconds - active.pop(event.job_id).arrival_seconds
            leased.discard(event.job_id)
            changed = True
        cluster.reap([event.job_id for event in seen.finished])
        while coming and coming[0].arrival_seconds <= seen.clock_seconds:
            spec = coming.pop(0)
            active[spec.job_id], changed = spec, True
        if not active and not coming:
            break
        picked, changed = policy.pick(seen.clock_seconds, active, changed)
        for job in leased.difference(picked):
            cluster.preempt(job)
        for job in picked:
            cluster.launch(Launch(job, tuple(range(active[job].scale_factor))))
        leased, rounds = set(picked), rounds + bool(picked)
        cluster.advance(coming[0].arrival_seconds if coming else None)
    contention = max(1.0, len(jct) / gpus)
    rho = [jct[t.job_id] / (t.isolated_seconds * contention) for t in workload.truths]
    scale = {spec.job_id: spec.scale_factor for spec in workload.specs}
    return {
        "makespan_s": seen.clock_seconds,
        "mean_jct_s": sum(jct.values()) / len(jct),
        "worst_ftf": max(rho),
        "unfair_fraction": sum(value > 1.05 for value in rho) / len(rho),
        "utilization": sum(ran[job] * scale[job] for job in ran) / gpus / seen.clock_seconds,
        "rounds": rounds,
    }


@pytest.mark.parametrize(
    ("jobs", "gpus", "profile"), [(120, 32, "tacc"), (220, 64, "wisr")], ids=["120", "220"]
)
def test_gandiva_fair_gets_what_the_published_simulator_gets(
    data: Path, jobs: int, gpus: int, profile: str
) -> None:
    name = f"jobs{jobs}_gpus{gpus}"
    workload = read_workload(
        data / f"{name}.trace", data / f"{profile}_throughputs.json", data / "gns_regimes.csv"
    )
    with (data / "reference_results.csv").open() as file:
        rows = csv.DictReader(file)
        (published,) = (
            row
            for row in rows
            if (row["trace"], row["policy"], row["source"]) == (name, "gandiva_fair", "run")
        )
    figures = run(workload, gpus)
    for figure in ("makespan_s", "mean_jct_s", "worst_ftf", "utilization"):
        assert figures[figure] == pytest.approx(float(published[figure]), rel=1e-3), figure
    assert figures["unfair_fraction"] == pytest.approx(
        float(published["unfair_fraction"]), abs=0.02
    )
    assert figures["rounds"] == float(published["rounds"])
