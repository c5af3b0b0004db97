"""A service's run so far; predicts and solves its last round again."""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar, cast

from containers.runtime import ResumePoint
from containers.virtual.faithful import FaithfulFactory
from flows.runs.simulation import make_terms, prepare
from flows.runs.snapshot import RunProgress, read_progress, read_snapshot
from predictor.errors import WarehouseError
from predictor.job import JobSpec
from tasks.commands import Command
from tasks.record import RoundRecord, Start
from tasks.replay import Comparison, Recording
from tasks.round import Prediction, Round, collect, predict, solve_round
from tasks.run import Run
from tasks.sources import Trace
from tasks.state import RunState
from warehouse.store.folder import run_folder
from warehouse.store.parts import round_files
from warehouse.store.reader import Reader
from warehouse.workloads.generator import declared_truth

Part = TypeVar("Part")

_get_round = attrgetter("round")


@dataclass(frozen=True)
class ServiceHistory:
    """A service's run so far.

    Attributes:
        start: Header of the run; the jobs are in the rounds.
        before: Progress before the last round.
        last: The last round; None before the first.
        position: Progress after the last round.
    """

    start: Start
    before: RunProgress
    last: RoundRecord | None
    position: RunProgress

    @property
    def state(self) -> RunState:
        """State after the last round."""
        return self.position.state

    def append(self, record: RoundRecord, digest: str) -> "ServiceHistory":
        """Return the history with a further round."""
        header = self.start.header
        return ServiceHistory(
            self.start, self.position, record, self.position.after(header, record, digest)
        )


class HistoryFollower:
    """The history of a run whose records grow; several threads may share it."""

    def __init__(self, reader: Reader, run: str, snapshot: Path) -> None:
        self._reader, self._run, self._snapshot = reader, run, snapshot
        self._history: ServiceHistory | None = None
        self._files: list[tuple[Path, int]] = []
        self._one = Lock()

    def read(self) -> ServiceHistory:
        """Return the history to the last record; the same object as long as no file changes.

        Raises:
            WarehouseError: The records are damaged.
        """
        with self._one:
            history, files = self._history, self._list_files()
            if history is None or not files or files != self._files:
                history = self._read_further()
                self._history, self._files = history, files
            return history

    def _list_files(self) -> list[tuple[Path, int]]:
        """List the files of rounds with their modification times; empty if one vanishes."""
        files = round_files(run_folder(self._reader.warehouse, self._run))
        with suppress(OSError):
            return [(path, path.stat().st_mtime_ns) for path in files]
        return []

    def _read_further(self) -> ServiceHistory:
        if self._history:
            with suppress(WarehouseError):  # the records were replaced: read all of them
                known = self._history.position.known
                return self._append(self._history, self._reader.records(self._run, *known))
        start = self._reader.original_start(self._run)
        position, rounds = read_progress(
            self._reader, start, self._run, read_snapshot(self._snapshot, self._run)
        )
        return self._append(ServiceHistory(start, position, None, position), rounds)

    @staticmethod
    def _append(history: ServiceHistory, rounds: list[tuple[RoundRecord, str]]) -> ServiceHistory:
        for record, digest in rounds:
            history = history.append(record, digest)
        return history


class RecentRounds(Generic[Part]):
    """Some fields of a run's rounds, each decoded once; several threads may share them.

    Args:
        reader: Reads the records.
        run: The run.
        kind: The fields; see `Reader.parts`.
        most: Number of the last rounds that are kept; earlier ones are read again for each call.
        filled: Leave out rounds in which all lists among these fields are empty.
    """

    def __init__(
        self, reader: Reader, run: str, kind: type[Part], most: float = inf, *, filled: bool = False
    ) -> None:
        self._read = partial(reader.parts, run, kind, filled=filled)
        self._most, self._of = most, cast("Start | None", None)
        self._begin, self._end, self._kept = 0, 0, list[Part]()
        self._one = Lock()

    def read(self, history: ServiceHistory, first: int = 0, stop: float = inf) -> list[Part]:
        """Return a history's rounds from a round on and before `stop`, in order.

        Raises:
            WarehouseError: The records are damaged.
        """
        last = history.state.round
        end, lowest = int(min(stop, last)), int(max(last - self._most, 0))
        if end <= lowest:
            return self._read(first, end) if first < end else []
        with self._one:
            wanted = min(max(first, lowest), last)
            if history.start is not self._of:  # the records were read anew
                self._of, self._begin, self._end, self._kept = history.start, wanted, wanted, []
            if self._end < last:
                self._kept += self._read(self._end, last)
                self._end = last
            if wanted < self._begin:
                self._kept = [*self._read(wanted, self._begin), *self._kept]
                self._begin = wanted
            kept, begin = self._kept, self._begin
            if begin < lowest:
                self._kept = kept[bisect_left(kept, lowest, key=_get_round) :]
                self._begin = lowest
        before = min(begin, end)
        older = self._read(first, before) if first < before else []
        chosen = slice(
            bisect_left(kept, first, key=_get_round), bisect_left(kept, end, key=_get_round)
        )
        return [*older, *kept[chosen]]


def solve_last_round(
    name: str,
    history: ServiceHistory,
    jobs: Sequence[JobSpec] = (),
    commands: Sequence[Command] = (),
) -> tuple[Run, Round]:
    """Solve the last round again; see `predict_last_round`."""
    run, prediction = predict_last_round(name, history, jobs, commands)
    return run, solve_round(run, prediction)


def predict_last_round(
    name: str,
    history: ServiceHistory,
    jobs: Sequence[JobSpec] = (),
    commands: Sequence[Command] = (),
) -> tuple[Run, Prediction]:
    """Repeat the last round up to its forecasts, with further jobs and commands.

    Before the first round, make a round of `jobs`, which must then be given. Numbers and times of
    `commands` are ignored.
    """
    start, last = history.start, _forget_orders(history)
    prepared = replace(prepare(start), state=history.before.state)
    if last is None:
        assert jobs
        header = start.header
        make = partial(declared_truth, profile=header.throughputs, seed=header.settings.seed)
        factory = FaithfulFactory([make(job) for job in jobs])
        run = prepared.on(factory.open(make_terms(header), ResumePoint()), Comparison(()), name)
    else:
        run = prepared.on(Recording([last]), Comparison(()), name)
    clock = last.clock_seconds if last else 0.0
    run.source = Trace(
        (
            *(last.arrivals if last else ()),
            *(replace(job, arrival_seconds=clock) for job in jobs),
        ),
        (
            *(last.commands if last else ()),
            *(replace(command, at_seconds=clock) for command in commands),
        ),
        before=history.before.state.source_position,
    )
    return run, predict(run, collect(run))


def _forget_orders(history: ServiceHistory) -> RoundRecord | None:
    """Return the last round without nodes that only orders have taken out of service.

    The repeated round applies its own orders, which may differ.
    """
    last = history.last
    if last is None:
        return None
    ordered = history.state.orders.out_of_service - {problem.node for problem in last.problems}
    drained = tuple(node for node in last.solve.drained if node not in ordered)
    return replace(last, solve=replace(last.solve, drained=drained))
