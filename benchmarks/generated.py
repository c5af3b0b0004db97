"""A generated warehouse of ended runs, of any size.

It has RUNS × ROUNDS × SLOTS rows of placements, in files like those of ended runs: the records'
own columns, with shorter forecasts and bids and without valid hashes.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode, Regime
from predictor.rows import to_row
from predictor.throughput import UNTYPED
from tasks.layout import VERSION
from tasks.record import RunHeader, Settings, make_pool
from warehouse.analytics.catalog import build
from warehouse.analytics.marts import materialise
from warehouse.store.arrow import rows_to_table, to_table, write_groups, write_table
from warehouse.store.checksums import add_sum
from warehouse.store.files import GROUP_ROUNDS, HEADER, ROUND, WORKLOAD, HeaderLabel, PlayedJob
from warehouse.store.folder import WORKLOAD_FILE, records_folder

ROUND_SECONDS = 120.0
TURN = 25
"""Rounds until a slot's two jobs change places; each gets two turns."""
SPAN = 4 * TURN
GANGS = (1, 1, 2, 4)
TENANTS = ("blue", "green", "red")
MODELS = ("ResNet-18", "LM", "Recommendation")
POLICIES = ("shockwave", "themis", "gavel", "srtf")
WHOLE = ".generated"
"""File that marks a complete warehouse."""


def generate(folder: Path, runs: int, rounds: int, slots: int) -> None:
    """Write the records of ended runs and the marts; then mark the warehouse as complete."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"--warehouse: {folder} is not empty, or was left half made; remove it")
    started = perf_counter()
    build(folder)
    for number in range(runs):
        run = f"{POLICIES[number % len(POLICIES)]}-{number // len(POLICIES):06d}-1"
        path = records_folder(folder) / f"run={run}"
        path.mkdir(exist_ok=True)
        made = Generated(run, number, rounds, slots)
        label = HeaderLabel(run, datetime(2026, 1, 1, tzinfo=UTC), (), f"{number:064x}")
        write_table(path / "header.parquet", to_table(HEADER, label, made.header))
        write_groups(path / WORKLOAD_FILE, WORKLOAD, [rows_to_table(WORKLOAD, made.jobs)])
        write_groups(path / "round=all.parquet", ROUND, made.groups())
        for file in sorted(path.glob("*.parquet")):
            add_sum(file)
    written = perf_counter()
    print(f"records written in {written - started:.0f} s", file=sys.stderr)
    materialise(folder)
    build(folder)
    (folder / WHOLE).touch()
    print(f"marts written in {perf_counter() - written:.0f} s", file=sys.stderr)


class Generated:
    """One run: in each slot two jobs take turns on the same GPUs, then two others do."""

    def __init__(self, run: str, seed: int, rounds: int, slots: int) -> None:
        if rounds % SPAN:
            raise SystemExit(f"--rounds: {rounds} is not a multiple of {SPAN}")
        self.run, self.rng = run, np.random.default_rng(seed)
        self.rounds = rounds + TURN + 1  # slots begin one after another, and a record closes
        slot = np.arange(slots)
        self.gang = np.array(GANGS)[slot % len(GANGS)]
        self.first_gpu = np.cumsum(self.gang) - self.gang
        spans = rounds // SPAN
        # Jobs by arrival: span, slot, first or second.
        arrival = (np.arange(spans)[:, None] * SPAN + slot % TURN).repeat(2, axis=1)
        order = np.argsort(arrival.ravel(), kind="stable")
        self.arrival = arrival.ravel()[order]
        self.slot_of = np.tile(slot.repeat(2), spans)[order]
        ids = np.empty(len(order), np.int64)
        ids[order] = np.arange(len(order))
        self.ids = ids.reshape(spans, slots, 2)
        self.header = self._header(POLICIES[seed % len(POLICIES)], seed)
        self._lay_out(slots, rounds)

    def _header(self, policy: str, seed: int) -> RunHeader:
        self.jobs = []
        for job_id, (slot, arrival) in enumerate(zip(self.slot_of, self.arrival, strict=True)):
            spec = JobSpec(
                job_id,
                MODELS[job_id % len(MODELS)],
                16,
                64,
                Demand.gang(int(self.gang[slot])),
                tuple(Mode)[job_id % 3],
                20,
                16000,
                float(arrival * ROUND_SECONDS),
                TENANTS[job_id % len(TENANTS)],
            )
            isolated = 2 * TURN * ROUND_SECONDS * (0.2 + 0.4 * self.rng.random())
            regimes = (Regime(16, 20),)
            truth = GroundTruth(job_id, isolated, regimes, regimes)
            self.jobs.append(PlayedJob(self.run, spec, truth))
        settings = Settings(policy, make_pool(int(self.gang.sum()), 4, UNTYPED), seed=seed)
        source = f"generated, seed {seed // len(POLICIES)}"
        return RunHeader(VERSION, settings, source, self.run, ())

    def _lay_out(self, slots: int, rounds: int) -> None:
        """The job that holds each slot in each round, -1 for none, and the progress of its turn."""
        local = np.arange(self.rounds)[:, None] - np.arange(slots) % TURN
        busy = (local >= 0) & (local < rounds)
        within = np.where(busy, local, 0)
        turn = within % SPAN // TURN
        self.holder = np.where(
            busy, self.ids[within // SPAN, np.arange(slots)[None, :], turn % 2], -1
        )
        self.turn, self.begins = turn, busy & (within % TURN == 0)
        self.ran = np.where(turn >= 2, TURN, 0) + within % TURN + 1

    def groups(self) -> Iterator[pa.Table]:
        for first in range(0, self.rounds, GROUP_ROUNDS):
            yield self._group(np.arange(first, min(first + GROUP_ROUNDS, self.rounds)))

    def _group(self, rounds: Any) -> pa.Table:
        before = np.concatenate([np.full((1, self.holder.shape[1]), -1), self.holder[:-1]])
        holder, was = self.holder[rounds], before[rounds]
        count = len(rounds)
        clock = rounds * ROUND_SECONDS
        round_at, slot_at = np.nonzero(holder >= 0)
        jobs, gpus = holder[round_at, slot_at], self._gpus(slot_at)
        changed = was != holder
        last_turn = np.concatenate([self.turn[:1], self.turn[:-1]])[rounds]
        ended = changed & (was >= 0) & (last_turn >= 2)
        lost = changed & (was >= 0) & (last_turn < 2)
        began = self.begins[rounds]
        ran = np.concatenate([self.ran[:1], self.ran[:-1]])[rounds]
        columns = {
            "run": pa.array([self.run] * count),
            "hash": pa.array([f"{number:064x}" for number in rounds]),
            "timings": self._structs(
                "timings", *(np.round(self.rng.gamma(2, 5, count), 1) for _ in range(4))
            ),
            "version": pa.array(np.full(count, VERSION)),
            "round": pa.array(rounds),
            "clock_seconds": pa.array(clock),
            "arrivals": self._arrivals(rounds),
            "finished": self._events(count, clock, [("finished", ended, was)]),
            "reports": self._reports(count, was, ran),
            "progress": self._progress(count, was, ran),
            "forecasts": self._forecasts(count, round_at, jobs),
            "estimates": self._estimates(count, round_at, jobs, ran),
            "bids": self._bids(count, round_at, jobs, slot_at),
            "solve": self._solves(count),
            "memory": pa.array([""] * count),
            "leases": self._per_round("leases", count, round_at, jobs, gpus),
            "events": self._events(
                count,
                clock,
                [
                    ("preempted", lost, was),
                    ("started", began & (self.turn[rounds] < 2), holder),
                    ("resumed", began & (self.turn[rounds] >= 2), holder),
                ],
            ),
            "previous_hash": pa.array([f"{max(number - 1, 0):064x}" for number in rounds]),
        }
        for field in ROUND:
            if field.name not in columns:  # of services, of shared GPUs, of troubled nodes
                columns[field.name] = pa.array([[]] * count, field.type)
        return pa.Table.from_arrays([columns[name] for name in ROUND.names], schema=ROUND)

    def _arrivals(self, rounds: Any) -> pa.Array:
        low = np.searchsorted(self.arrival, [*rounds, rounds[-1] + 1])
        kind = ROUND.field("arrivals").type
        specs = [to_row(job.spec) for job in self.jobs[low[0] : low[-1]]]
        offsets = pa.array(low - low[0], pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(specs, kind.value_type))

    def _structs(self, name: str, *values: Any) -> pa.Array:
        kind = ROUND.field(name).type
        kind = kind.value_type if pa.types.is_list(kind) else kind
        arrays = [pa.array(value, kind.field(n).type) for n, value in enumerate(values)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    def _per_round(self, name: str, count: int, round_at: Any, *values: Any) -> pa.Array:
        """Lists of structs, of which the rounds ascend."""
        offsets = np.searchsorted(np.asarray(round_at), np.arange(count + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, self._structs(name, *values))

    def _lists(self, like: Any, values: list[float], noise: float = 0.0) -> pa.Array:
        """The same short list for each, shifted by a little."""
        table = np.tile(values, (len(like), 1))
        if noise:
            table = table + np.round(noise * self.rng.random((len(like), 1)), 3)
        offsets = np.arange(0, table.size + 1, len(values), dtype=np.int32)
        return pa.ListArray.from_arrays(offsets, pa.array(table.ravel()))

    def _gpus(self, slots: Any) -> pa.Array:
        size = self.gang[slots]
        offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int32)
        within = np.arange(offsets[-1]) - offsets[:-1].repeat(size)
        return pa.ListArray.from_arrays(
            offsets, pa.array(self.first_gpu[slots].repeat(size) + within)
        )

    def _events(self, count: int, clock: Any, parts: list[tuple[str, Any, Any]]) -> pa.Array:
        events = [(*np.nonzero(mask), kind, who) for kind, mask, who in parts]
        at = np.concatenate([rounds for rounds, *_ in events])
        slots = np.concatenate([where for _, where, *_ in events])
        kinds = np.concatenate([np.full(len(where), kind) for _, where, kind, _ in events])
        jobs = np.concatenate([who[rounds, where] for rounds, where, _, who in events])
        order = np.argsort(at, kind="stable")
        return self._per_round(
            "events",
            count,
            at[order],
            jobs[order],
            kinds[order],
            clock[at[order]],
            self._gpus(slots[order]),
            np.where(kinds[order] == "preempted", "its GPUs go to job 0", ""),
        )

    def _progress(self, count: int, was: Any, ran: Any) -> pa.Array:
        at, slots = np.nonzero(was >= 0)
        done = ran[at, slots] / (2 * TURN)
        begun = 1 + (ran[at, slots] > TURN)
        return self._per_round(
            "progress",
            count,
            at,
            was[at, slots],
            np.floor(20 * done).astype(int),
            20 * done % 1,
            np.full(len(at), 16),
            np.full(len(at), ROUND_SECONDS),
            ran[at, slots] * ROUND_SECONDS - 20 * begun,
            np.round(20000 * (1 - done)).astype(int),
            np.zeros(len(at)),
            np.zeros(len(at), int),
            np.zeros(len(at)),
            np.zeros(len(at)),
        )

    def _reports(self, count: int, was: Any, ran: Any) -> pa.Array:
        at, slots = np.nonzero((was >= 0) & (ran % 5 == 0))
        epochs = ran[at, slots] * 20 // (2 * TURN)
        grown = np.where(was[at, slots] % 3 > 0, np.minimum(64, 16 * 2 ** (epochs // 8)), 16)
        return self._per_round(
            "reports",
            count,
            at,
            was[at, slots],
            epochs - 2,
            np.full(len(at), 2),
            grown,
            np.full(len(at), 5 * ROUND_SECONDS),
        )

    def _forecasts(self, count: int, at: Any, jobs: Any) -> pa.Array:
        work = self._lists(jobs, [9.0])
        return self._per_round(
            "forecasts",
            count,
            at,
            jobs,
            self._lists(jobs, [16]),
            self._lists(jobs, [0.0]),
            work,
            work,
            work,
            pa.array([[]] * len(jobs), pa.list_(pa.list_(pa.float64()))),
        )

    def _estimates(self, count: int, at: Any, jobs: Any, ran: Any) -> pa.Array:
        left = (2 * TURN - ran[at, self.slot_of[jobs]] % (2 * TURN)) * ROUND_SECONDS
        expected = np.round(left * (0.9 + 0.2 * self.rng.random(len(left))))
        whole = 2 * TURN * ROUND_SECONDS
        return self._per_round(
            "estimates",
            count,
            at,
            jobs,
            self._own(self.gang[self.slot_of[jobs]]),
            1 - left / whole,
            whole - left,
            expected,
            np.round(0.9 * expected),
            np.round(1.1 * expected),
        )

    def _own(self, gpus: Any) -> pa.Array:
        """The allocations of gangs."""
        kind = ROUND.field("estimates").type.value_type.field("allocation").type
        values = ([UNTYPED] * len(gpus), gpus, -(-gpus // 4), [[]] * len(gpus))
        arrays = [pa.array(value, kind.field(n).type) for n, value in enumerate(values)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    def _bids(self, count: int, at: Any, jobs: Any, slots: Any) -> pa.Array:
        ones = np.ones(len(jobs))
        return self._per_round("bids", count, at, jobs, self._own(self.gang[slots]), ones, ones)

    def _solves(self, count: int) -> pa.Array:
        market = self.run.startswith("shockwave")
        words = ("lagrangian", "asked", "optimal") if market else ("none", "no market", "rule")
        policy = self.run.split("-")[0]
        figures = [np.round(self.rng.random(count), 4) for _ in range(3)]
        prices = [
            [{"gpu_type": UNTYPED, "price": price}] * market
            for price in np.round(self.rng.random(count), 4).tolist()
        ]
        counts = [self.rng.integers(0, 5, count) for _ in range(3)]
        texts = [[word] * count for word in (policy, *words)]
        if not market:
            figures, counts = [0 * value for value in figures], [0 * value for value in counts]
        drained = pa.array([[]] * count, pa.list_(pa.int64()))
        return self._structs("solve", *texts, *figures, prices, *counts, drained)
