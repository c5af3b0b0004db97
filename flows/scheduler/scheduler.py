"""The scheduler process of a service: `python -m flows.scheduler.scheduler WAREHOUSE OPTIONS`.

It may be killed at any time: the next scheduler resumes from the records and takes in later inbox
entries.
"""

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerRuntime
from containers.slurm.brain import SlurmBrain
from containers.slurm.commands import Commands
from containers.virtual.real_time import RealTimeCluster
from containers.virtual.truth import GroundTruth
from flows.prefect_server.children import ALIVE, READY, end_with_parent
from flows.prefect_server.garbage import collect_rarely
from flows.prefect_server.logs import is_structured, log_line, start_log
from flows.prefect_server.teardown import end_process
from flows.runs.cluster_file import read_cluster
from flows.runs.code_version import list_packages
from flows.runs.hosts import Hosts
from flows.runs.live import begin_live, check_jobs, continue_live
from flows.runs.queue_run import open_queue_run
from flows.runs.resuming import check_plugins, repeat_round
from flows.runs.simulation import Driver, make_terms, prepare
from flows.runs.snapshot import RunProgress, SnapshotSink, read_progress, read_snapshot
from flows.scheduler.admission import (
    check_job,
    check_node,
    check_order,
    check_tenant,
    find_truth_maker,
)
from flows.scheduler.intake import (
    NEW_SERVICE,
    NODES_OF_SLURM,
    InboxSource,
    ReplaySource,
    refuse_image,
)
from flows.scheduler.leadership import TOKEN
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.scheduler.pause import Pause
from flows.scheduler.process import count_late_round, write_prefect_state
from flows.scheduler.queue_intake import QueueSource
from flows.scheduler.sinks import FencedSink, LoggingSink
from predictor.errors import InputError, WarehouseBusy
from predictor.job import JobSpec
from tasks.commands import NewNode, TenantTerms
from tasks.record import RoundRecord, RunHeader
from tasks.round import run_round
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.lease import Leases
from warehouse.store.folder import SNAPSHOT
from warehouse.store.reader import Reader, add_taken_in
from warehouse.store.writer import Writer

if TYPE_CHECKING:
    from flows.prefect_server.round_deployment import RoundRequest

LOOK_SECONDS = 0.25
"""Poll interval of the inbox while idle. An engineering choice."""


TRUTHS = 2**10
"""Most ground truths cached between the steps of a round. An engineering bound."""

HANDOVER_SECONDS = 30.0
"""Longest wait for an orphaned scheduler to end. An engineering bound."""


def main(warehouse: Path, options: ServiceOptions) -> None:
    """Schedule until SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that contexts close
    end_with_parent()
    start_log()
    url, token = os.environ.get(DATABASE_URL, ""), os.environ.get(TOKEN)
    with (
        Inbox(warehouse, url) as inbox,
        wait_for_previous_writer(lambda: open_run(warehouse, inbox, options)) as run,
        _open_driver(warehouse, options) as (driver, read_request),
        closing(Leases(warehouse, url)) as leases,
    ):
        if token:
            run.check = partial(leases.check, int(token))
            run.sink = FencedSink(run.sink, run.check)
        if is_structured():
            run.sink = LoggingSink(run.sink, run.name)
        print(READY, flush=True)
        pause = Pause(inbox, read_request)
        alive = partial(print, ALIVE, flush=True)
        schedule(run, warehouse, driver, alive=alive, may_begin=pause.may_begin)


@contextmanager
def wait_for_previous_writer(enter: Callable[[], AbstractContextManager[Run]]) -> Iterator[Run]:
    """Open a run once its previous writer has ended; it may outlive its parent by a round.

    Raises:
        WarehouseBusy: The previous writer has not ended within `HANDOVER_SECONDS`.
    """
    until = time.monotonic() + HANDOVER_SECONDS
    with ExitStack() as opened:
        while True:
            try:
                run = opened.enter_context(enter())
                break
            except WarehouseBusy:
                if time.monotonic() > until:
                    raise
                time.sleep(LOOK_SECONDS)
        yield run


@contextmanager
def _open_driver(
    warehouse: Path, options: ServiceOptions
) -> Iterator[tuple[Driver, "Callable[[], RoundRequest | None]"]]:
    """Open the driver of rounds, and the reader of users' requests in Prefect's UI.

    The environment holds Prefect's settings.
    """
    if options.driver == "plain":
        write_prefect_state(warehouse, "not used")
        yield run_round, lambda: None
        return
    from flows.prefect_server.fallback import open_fallback_driver

    def report(state: str) -> None:
        log_line("scheduler", f"Prefect's server {state}", level=logging.WARNING)
        write_prefect_state(warehouse, state)

    write_prefect_state(warehouse, "answers")
    with open_fallback_driver(options.round_seconds / options.speed, report) as driver:
        yield driver, driver.read_request


def schedule(
    run: Run,
    warehouse: Path,
    driver: Driver = run_round,
    rounds: int | None = None,
    alive: Callable[[], None] = lambda: None,
    may_begin: Callable[[], bool] = lambda: True,
) -> None:
    """Drive a service's rounds; while it has no jobs, wait for the next entry.

    Args:
        run: The run.
        warehouse: The warehouse that holds it.
        driver: Executes a round.
        rounds: Number of rounds; by default unlimited.
        alive: Called at least once per round, so that the supervisor sees progress.
        may_begin: Returns whether the next round may begin; asked again after a pause.
    """
    last = None if rounds is None else run.state.round + rounds
    with collect_rarely():
        while last is None or run.state.round < last:
            alive()
            idle = (
                not run.state.beliefs and run.source.idle_until(run.state.source_position) is None
            )
            if not may_begin() or idle:
                time.sleep(LOOK_SECONDS)
                continue
            driver(run)
            if run.state.round == 1:
                build(warehouse)  # makes the new run's views queryable


@contextmanager
def open_run(warehouse: Path, inbox: Inbox, options: ServiceOptions) -> Iterator[Run]:
    """Open a service's run, new or resumed, for the context.

    Raises:
        ShockwaveError: The options differ from the run's, or the records are damaged.
    """
    import scipy.special  # noqa: F401  saves the first round a quarter of a second

    build(warehouse)
    name, checks = inbox.run, list[Callable[[JobSpec], None]]()
    hosts: Hosts | None = None
    with ExitStack() as opened:
        brain: SlurmBrain | None = None
        commands = Commands()
        if options.partition:
            start, at = options.make_start(), warehouse / SNAPSHOT
            run, brain = opened.enter_context(
                open_queue_run(name, start, commands, options.partition, warehouse, at)
            )
            now, speed, truth = brain.clock.now, 1.0, None
        elif options.cluster is not None:
            nodes = read_cluster(options.cluster)
            at = warehouse / SNAPSHOT
            going = continue_live(name, nodes, warehouse, at) if name else None
            live = opened.enter_context(
                going or begin_live(options.make_start(), nodes, warehouse, at)
            )
            run, now, speed, truth = live.run, live.runtime.clock.now, 1.0, None
            checks.append(lambda spec: check_jobs(nodes, [spec]))
            inbox.set_cluster(options.cluster.absolute())
            if isinstance(live.runtime, DockerRuntime):
                hosts = Hosts(options.cluster, run, live.runtime)
        else:
            run, pace, truth = opened.enter_context(_open_virtual(name, warehouse, options))
            now, speed = pace.now, pace.speed
        inbox.claim(run.name)

        def check(spec: JobSpec, terms: TenantTerms | None) -> None:
            for refuse in checks:
                refuse(spec)
            check_job(spec, run.header, run.state.present_inventory(run.header), truth)
            check_tenant(spec, terms or run.state.tenancy.terms.get(spec.tenant))

        def add(node: NewNode, before: Sequence[NewNode]) -> None:
            added = (*run.state.orders.added, *(other.pool for other in before))
            there = run.header.settings.inventory_in(run.state.round, added)
            check_node(node, run.header, there)
            if hosts:
                hosts.add(node)
            elif brain or options.cluster is not None:
                raise InputError("name", NODES_OF_SLURM, NEW_SERVICE)

        def check_of_users(kind: str, target: int) -> None:
            if brain:
                check_order(kind, target, run.state, run.state.inventory(run.header))

        change = hosts.change_image if hosts else refuse_image
        entries = InboxSource(inbox, now, speed, check, add, truth, change, check_of_users)
        run.source = entries
        if brain:
            inventory = run.header.settings.inventory
            queue = QueueSource(inbox, entries, brain, commands, inventory)
            checks.append(queue.check)
            run.source = queue
        yield run


@contextmanager
def _open_virtual(
    name: str, warehouse: Path, options: ServiceOptions
) -> Iterator[tuple[Run, RunClock, Callable[[JobSpec], GroundTruth]]]:
    """Open a run on a virtual cluster in real time, after its last recorded round.

    Yields the run, its clock, and the function that makes ground truths of jobs.
    """
    reader = Reader(warehouse)
    start = reader.original_start(name) if name else options.make_start()
    if name:
        options.check_same(name, start.header)
        check_plugins(name, start, reader)
    prepared = prepare(start)
    used = () if name else list_packages(start.header.settings)
    with ExitStack() as opened:
        writer = opened.enter_context(Writer(warehouse, start, run=name or None, packages=used))
        path = warehouse / SNAPSHOT
        snapshot, recorded = read_snapshot(path, name), list[tuple[RoundRecord, str]]()
        position = RunProgress(prepared.state)
        if name:  # opening the writer may have completed a round that a kill interrupted
            position, recorded = read_progress(reader, start, name, snapshot)
            prepared = replace(prepared, state=position.state)
        cluster = snapshot.cluster if snapshot and position is snapshot.position else None
        rounds = [record for record, _ in recorded]
        again = replace(
            add_taken_in(start.workload, rounds).trace, before=prepared.state.source_position
        )
        made, at = _Truths(start.header, again.truths).get, make_terms(start.header, writer.run)
        runtime = opened.enter_context(closing(RealTimeCluster(made, at, cluster)))
        run = prepared.on(runtime, writer, writer.run)
        run.source = ReplaySource(again, tuple(record.clock_seconds for record in rounds))
        for record, digest in recorded:
            if cluster and record is rounds[0]:
                run.follow(record, digest)  # the snapshot's cluster has executed this round already
            else:
                repeat_round(run, record, digest)
            position = position.at(run.header, record, run.state)
        run.sink = SnapshotSink(writer, run, path, position, runtime.state)
        runtime.pace = pace = RunClock(
            run.state.clock_seconds, options.speed, on_late=partial(count_late_round, warehouse)
        )
        yield run, pace, made


class _Truths:
    def __init__(self, header: RunHeader, known: Iterable[GroundTruth]) -> None:
        self._known = {truth.job_id: truth for truth in known}
        make = find_truth_maker(header)
        assert make
        self._make = lru_cache(TRUTHS)(make)

    def get(self, spec: JobSpec) -> GroundTruth:
        """Return a job's ground truth."""
        return self._known.get(spec.job_id) or self._make(spec)


if __name__ == "__main__":
    codes = [0]
    try:
        main(Path(sys.argv[1]), ServiceOptions.parse(sys.argv[2]))
    except KeyboardInterrupt:  # SIGTERM
        pass
    except Exception:
        traceback.print_exc()
        codes = [1]
    # The interpreter's own exit would wait for a Prefect server that does not answer.
    end_process(codes)
