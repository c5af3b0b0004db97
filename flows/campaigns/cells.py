"""The cells of a campaign: expansion of the plan, cache keys, and execution."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter

from flows.campaigns.plan import CampaignPlan, WorkloadPlan
from flows.runs.code_version import hash_code
from flows.runs.resuming import resume
from flows.runs.simulation import Progress, Watch, prepare, simulate
from flows.runs.start import make_start, open_workload, read_past_jobs
from flows.runs.workload_source import Source
from predictor.errors import InputError, ShockwaveError
from tasks.record import PastJob, Settings, Start
from tasks.run import Run
from tasks.sources import Workload
from warehouse.store.campaigns import CellStore, FinishedCell

MOST_CELLS = 100_000
"""Upper bound on a campaign's cells; larger plans count as mistakes. An engineering bound."""


@dataclass(frozen=True, slots=True)
class CampaignCell:
    """A run of a campaign, in plain values that can be sent to any worker.

    Attributes:
        name: Name of the cell within the campaign.
        policy: Name of the policy within the campaign.
        options: Name of the variant of the settings, or empty.
        history: Earlier runs whose finished jobs are learned from.
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


def expand_cells(plan: CampaignPlan) -> tuple[CampaignCell, ...]:
    """Return the cells of a campaign, in the order of its parts.

    Raises:
        InputError: The campaign has no cells, or too many.
    """
    cells = tuple(_cells(plan))
    if not 0 < len(cells) <= MOST_CELLS:
        raise InputError(
            f"campaign {plan.name!r}", f"has {len(cells):,} cells", f"give 1 to {MOST_CELLS:,}"
        )
    return cells


def check_start(plan: CampaignPlan, warehouse: Path) -> None:
    """Refuse a campaign before it starts if none of its cells can start.

    Raises:
        InputError: No cell can start (with the first one's reason), or their number is invalid.
        ShockwaveError: The history cannot be read.
    """
    starts = CellStarts(warehouse)
    starts.history(plan.history)
    refused: list[tuple[CampaignCell, ShockwaveError]] = []
    for cell in expand_cells(plan):
        try:
            starts.start(cell)
        except ShockwaveError as error:
            refused.append((cell, error))
        else:
            return
    first, reason = refused[0]
    raise InputError(
        f"campaign {plan.name!r}",
        f"no cell can start; {first.name}: {reason.place}: {reason.problem}",
        reason.remedy,
    )


def _cells(plan: CampaignPlan) -> Iterator[CampaignCell]:
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
            names = [policy.name, workload.name, cluster.name, *filter(None, [options])]
            yield CampaignCell(
                name="/".join([*names, f"seed{seed}"]),
                policy=policy.name,
                workload=workload.name,
                cluster=cluster.name,
                options=options,
                seed=seed,
                source=workload.source(seed),
                settings=settings.settings(policy, cluster, seed),
                history=plan.history,
            )


def _seeds(plan: CampaignPlan, workload: WorkloadPlan) -> Sequence[int]:
    return plan.seeds if workload.seeds is None else workload.seeds


class CellStarts:
    """Starts of cells; workloads and histories that cells share are read once."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._workloads: dict[tuple[Source, int, tuple[str, ...]], Workload] = {}
        self._histories: dict[tuple[str, ...], tuple[PastJob, ...]] = {}

    def start(self, cell: CampaignCell) -> Start:
        """Return the start of a cell's run.

        Raises:
            ShockwaveError: Its workload, a setting or its history is invalid.
        """
        asked = cell.source, cell.settings.gpus, cell.settings.inventory.types
        if asked not in self._workloads:
            self._workloads[asked] = open_workload(cell.source, cell.settings)
        start = make_start(self._workloads[asked], cell.settings, self.history(cell.history))
        prepare(start)
        return start

    def history(self, runs: tuple[str, ...]) -> tuple[PastJob, ...]:
        """Return the finished jobs of earlier runs.

        Raises:
            ShockwaveError: A run does not exist, or its records are damaged.
        """
        if runs not in self._histories:
            self._histories[runs] = read_past_jobs(self._warehouse, runs)
        return self._histories[runs]


def make_cell_key(start: Start, code: str) -> str:
    """Return the cache key of a finished cell: the hash of its start and of the code."""
    return hashlib.sha256(f"{start.digest} {code}".encode()).hexdigest()


def finish_cell(
    cell: CampaignCell,
    key: str,
    warehouse: Path,
    *,
    fresh: bool = False,
    watch: Watch | None = None,
) -> FinishedCell:
    """Finish a cell: look up its finished run, resume an unfinished run, or start a new run.

    Args:
        cell: The cell.
        key: Its key, as computed by the process that started the campaign.
        warehouse: Destination of its run.
        fresh: Whether to start a new run even if the cell is finished.
        watch: Makes the callback for each round.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The cell cannot be run, or this process has other code or files.
    """
    start = CellStarts(warehouse).start(cell)
    if make_cell_key(start, hash_code(start.header.settings)) != key:
        raise InputError(
            f"cell {cell.name!r}",
            "this worker has other code or files than the process that started the campaign",
            "give all workers the same code and files",
        )
    return finish_start(
        start, key, warehouse, fresh=fresh, progress=watch(start) if watch else None
    )


def finish_start(
    start: Start,
    key: str,
    warehouse: Path,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
) -> FinishedCell:
    """Finish the run of a start as `finish_cell` does; `progress` is called for each round."""
    store = CellStore(warehouse)
    with store.alone(key):
        # Another process may have finished the cell while this one waited for the lock.
        finished = None if fresh else store.find_finished(key)
        if finished is not None:
            return finished
        started = perf_counter()
        begun: list[str] = []

        def after_round(run: Run) -> None:
            if not begun:
                begun.append(run.name)
                store.begin(key, run.name)
            if progress is not None:
                progress(run)

        run = None if fresh else store.find_begun(key)
        if run is None:
            run = simulate(start, warehouse, progress=after_round)
        else:
            resume(run, warehouse, progress=after_round)
        return store.finish(key, run, perf_counter() - started)
