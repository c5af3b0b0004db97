"""The cells of a campaign: what each runs, its key, and how one is brought to its end."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter

from flows.campaigns.plan import Campaign, WorkloadPlan
from flows.runs.code_version import code_version
from flows.runs.header import make_header, past_jobs
from flows.runs.prepared import prepare
from flows.runs.simulation import resume, simulate
from flows.runs.workload_source import Source
from predictor.errors import InputError
from tasks.record import PastJob, RunHeader, Settings, record_hash
from tasks.round import Run
from warehouse.store.campaigns import CellStore, FinishedCell
from warehouse.workloads.workload import Workload

MOST_CELLS = 100_000
"""More are a mistake."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a campaign, in plain values that any worker can be sent.

    Attributes:
        name: Within the campaign.
        policy: Name of the policy within the campaign.
        workload: Name of the workload.
        cluster: Name of the cluster.
        options: Name of the variant of the settings, or empty.
        seed: Seed of all that is drawn.
        source: Where its jobs come from.
        settings: What its run is asked to do.
        history: Earlier runs to learn from.
    """

    name: str
    policy: str
    workload: str
    cluster: str
    options: str
    seed: int
    source: Source
    settings: Settings
    history: tuple[str, ...]


def expand(plan: Campaign) -> tuple[Cell, ...]:
    """The cells of a campaign, in the order of its parts.

    Raises:
        InputError: There are none, or too many.
    """
    cells = tuple(_cells(plan))
    if not 0 < len(cells) <= MOST_CELLS:
        raise InputError(
            f"campaign {plan.name!r}", f"has {len(cells):,} cells", f"give 1 to {MOST_CELLS:,}"
        )
    return cells


def _cells(plan: Campaign) -> Iterator[Cell]:
    variants = [("", plan.settings)]
    if plan.options:
        variants = [(options.name, options.over(plan.settings)) for options in plan.options]
    parts = product(plan.workloads, plan.clusters, variants, plan.policies)
    for workload, cluster, (options, settings), policy in parts:
        if workload.clusters and cluster.name not in workload.clusters:
            continue
        if policy.workloads and workload.name not in policy.workloads:
            continue
        for seed in _seeds(plan, workload):
            told = [policy.name, workload.name, cluster.name, *filter(None, [options])]
            yield Cell(
                name="/".join([*told, f"seed{seed}"]),
                policy=policy.name,
                workload=workload.name,
                cluster=cluster.name,
                options=options,
                seed=seed,
                source=workload.source(seed),
                settings=settings.settings(policy, cluster, seed),
                history=plan.history,
            )


def _seeds(plan: Campaign, workload: WorkloadPlan) -> Sequence[int]:
    return plan.seeds if workload.seeds is None else workload.seeds


class Headers:
    """What cells start from; workloads and histories that several share are read once.

    Args:
        warehouse: Where the runs of a history are.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._workloads: dict[tuple[Source, int], Workload] = {}
        self._histories: dict[tuple[str, ...], tuple[PastJob, ...]] = {}

    def header(self, cell: Cell) -> RunHeader:
        """What a cell's run starts from.

        Raises:
            ShockwaveError: Its workload, a setting or its history is wrong.
        """
        asked = cell.source, cell.settings.gpus
        if asked not in self._workloads:
            self._workloads[asked] = cell.source.open(cell.settings.gpus)
        header = make_header(self._workloads[asked], cell.settings, self.history(cell.history))
        prepare(header)
        return header

    def history(self, runs: tuple[str, ...]) -> tuple[PastJob, ...]:
        """The finished jobs of earlier runs.

        Raises:
            ShockwaveError: There is no such run, or its records are damaged.
        """
        if runs not in self._histories:
            self._histories[runs] = past_jobs(self._warehouse, runs)
        return self._histories[runs]


def cell_key(header: RunHeader, code: str) -> str:
    """What a finished cell is found again by: the hash of all it starts from, and the code."""
    return hashlib.sha256(f"{record_hash(header)} {code}".encode()).hexdigest()


Watch = Callable[[RunHeader], Callable[[Run], None]]
"""Given what a run starts from, what is told after each of its rounds."""


def finish(
    cell: Cell, key: str, warehouse: Path, *, fresh: bool = False, watch: Watch | None = None
) -> FinishedCell:
    """Bring a cell to its end: find it finished, go on with its run, or start one.

    Args:
        cell: What to run.
        key: Its key where the campaign was started.
        warehouse: Where its run goes.
        fresh: Whether to start a run in any case.
        watch: Told after each round.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: It cannot be run, or this process has other code or other files.
    """
    header = Headers(warehouse).header(cell)
    if cell_key(header, code_version()) != key:
        raise InputError(
            f"cell {cell.name!r}",
            "starts from something else, or runs other code, than where the campaign was started",
            "give all workers the same code and files",
        )
    store, told = CellStore(warehouse), watch(header) if watch else None
    with store.alone(key):
        found = None if fresh else store.finished(key)
        if found is not None:
            return found
        started = perf_counter()
        begun: list[str] = []

        def progress(run: Run) -> None:
            if not begun:
                begun.append(run.name)
                store.begin(key, run.name)
            if told is not None:
                told(run)

        run = None if fresh else store.begun(key)
        if run is None:
            run = simulate(header, warehouse, progress=progress)
        else:
            resume(run, warehouse, progress=progress)
        return store.finish(key, run, perf_counter() - started)
