"""A round in Prefect's UI as artifacts: allocation, market, and a Gantt of the last rounds."""

import json
import logging
import os
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import copy_context
from pathlib import Path
from threading import Lock
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.actions import ArtifactCreate

from flows.prefect_server.command import REPORTS
from solver.plan import SolveReport
from tasks.record import RoundRecord, RunHeader
from tasks.round import RecordedRound
from tasks.run import Run

MOST_BIDS = 50
"""Most bids shown per round. A choice of layout."""

GANTT_ROUNDS = 30
"""Most rounds that a Gantt shows. A choice of layout."""

GANTT_EVERY = 10
"""Rounds between two Gantts. An engineering choice, which bounds the growth of the database."""

MOST_PENDING = 100
"""Rounds whose artifacts may wait for a slow server; artifacts of further rounds are left out."""

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d")
"""Colours that jobs take in turn."""


class RoundPublisher:
    """Sends artifacts from a thread of its own, so that no round waits for them.

    A server that refuses artifacts or does not answer costs only these artifacts.
    """

    def __init__(self) -> None:
        self._pool, self._turn = ThreadPoolExecutor(1, "artifacts"), Lock()
        self._turn.acquire()
        self._pending = set[Future[None]]()
        self._abandoned = False
        self._last = deque[RoundRecord](maxlen=GANTT_ROUNDS)

    def publish(self, run: Run, done: RecordedRound, flow_run: UUID) -> None:
        """Publish the artifacts of a run's round in a flow run."""
        last = self._last
        if last and last[-1].round + 1 != done.record.round:
            last.clear()  # another run
        last.append(done.record)
        if len(self._pending) < MOST_PENDING:
            call = copy_context().run  # with Prefect's settings
            future = self._pool.submit(
                call, self._send, run.name, run.header, done, tuple(last), flow_run
            )
            self._pending.add(future)
            future.add_done_callback(self._pending.discard)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send artifacts within the context, and only there.

        If SQLite refuses one of two writes at the same time, Prefect's client waits 2 s. So a
        round's artifacts are sent during the tasks of the next, not while a flow run changes.
        """
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def abandon(self) -> None:
        """Drop the artifacts that have not been sent."""
        self._abandoned = True

    def close(self) -> None:
        """Send the rest, unless it was dropped."""
        self._turn.release()
        self._pool.shutdown(wait=not self._abandoned, cancel_futures=self._abandoned)

    def _send(
        self,
        run: str,
        header: RunHeader,
        done: RecordedRound,
        last: Sequence[RoundRecord],
        flow_run: UUID,
    ) -> None:
        try:
            with get_client(sync_client=True) as client:
                for artifact in make_artifacts(run, header, done, last):
                    with self._turn:
                        if self._abandoned:
                            return
                        client.create_artifact(
                            artifact.model_copy(update={"flow_run_id": flow_run})
                        )
        except Exception as error:
            if self._abandoned:  # reported with the server's absence
                return
            logging.getLogger("shockwave").warning(
                "run %s round %d: Prefect's server took no artifacts: %s",
                run,
                done.record.round,
                error,
            )


@contextmanager
def open_publisher() -> Iterator[RoundPublisher]:
    """Open a publisher; at the end of the context, send the rest."""
    with closing(RoundPublisher()) as publisher:
        yield publisher


def make_artifacts(
    run: str, header: RunHeader, done: RecordedRound, last: Sequence[RoundRecord]
) -> Iterator[ArtifactCreate]:
    """Yield a round's artifacts; `last` are the records of the last rounds, this one included."""
    number = done.record.round
    yield ArtifactCreate(
        key=f"allocation-{run}",
        type="table",
        description=f"GPUs by job in round {number} of run {run}",
        data=json.dumps(_allocation(done) or [{"job": "none"}]),
    )
    yield ArtifactCreate(
        key=f"market-{run}",
        type="markdown",
        description=f"Round {number}",
        data=_market(run, header, done),
    )
    if number % GANTT_EVERY == GANTT_EVERY - 1:
        drawn = b64encode(draw_gantt(last, header.settings.gpus).encode()).decode()
        yield ArtifactCreate(
            key=f"gantt-{run}",
            type="image",
            description=f"GPUs by job in rounds {last[0].round} to {number} of run {run}",
            data=f"data:image/svg+xml;base64,{drawn}",
        )


def _allocation(done: RecordedRound) -> list[dict[str, object]]:
    changes = {event.job_id: event.kind.value for event in done.record.events}
    return [
        {
            "job": job_id,
            "model": job.spec.model,
            "gpus": " ".join(map(str, gpus)),
            "change": changes.get(job_id, ""),
            "batch size": job.belief.batch_size,
            "progress": f"{job.belief.share_done:.1%}",
            "remaining (s)": round(job.run_time(job.own).remaining) if job.forecast else "",
        }
        for job_id, gpus in done.plan.placement.items()
        for job in [done.active[job_id]]
    ]


def _market(run: str, header: RunHeader, done: RecordedRound) -> str:
    report, kept = done.plan.report, done.record
    busy = len({gpu for gpus in done.plan.placement.values() for gpu in gpus})
    return f"""# Round {kept.round} of run {run}

| | |
| --- | --- |
| clock | {kept.clock_seconds:,.1f} s |
| active jobs | {len(done.state.beliefs)} ({len(kept.arrivals)} new) |
| ended in the previous round | {len(kept.ended)} |
| running jobs | {len(done.plan.placement)} |
| busy GPUs | {busy} of {header.settings.gpus} |
| policy | {report.policy} |
{_prices(report) if report.prices else ""}| solve | {done.timings.solve_ms:.1f} ms |
{_changes(header, done)}{_bids(header, done)}
## More
{_links(run, header)}- why a job runs or waits: `shockwave why JOB --run {run} --round {kept.round}`
- a report about the run: `shockwave report {run}`
"""


def _links(run: str, header: RunHeader) -> str:
    """Return links to the pages about a service's run, on the server of this UI."""
    if not header.service:
        return ""
    written = Path(os.environ.get(REPORTS, ""), f"{run}.html").exists()
    report = f"report](/reports/{run}.html)" if written else "write a report](/deployments)"
    return f"- [live page](/live)\n- [{report}\n"


def _job(job_id: int, header: RunHeader) -> str:
    """Return a job's id, linked to the reasons for its state if it is a service's."""
    return f"[{job_id}](/live/jobs/{job_id}#why-title)" if header.service else str(job_id)


def _prices(report: SolveReport) -> str:
    """Describe how the market was solved, its prices, and the gap due to placing whole gangs."""
    prices = "".join(
        f"| price of a GPU-round ({row.gpu_type}) | {row.price:.3g} |\n" for row in report.prices
    )
    return f"""| solution | {report.status}, by {report.backend} ({report.reason}) |
| gap between the plan and its bound | {report.gap:.2%} |
{prices}"""


def _changes(header: RunHeader, done: RecordedRound) -> str:
    """Describe the jobs that ended, started, resumed or were preempted, with the reasons."""
    worth = _worth(done)
    lines = []
    for event in (*done.record.finished, *done.record.events):
        bid = f"bids {worth[event.job_id]:.3g} per GPU" if event.job_id in worth else ""
        gpus = " ".join(map(str, event.gpus))
        job = _job(event.job_id, header)
        lines.append(f"| {job} | {event.kind} | {gpus} | {event.reason or bid} |\n")
    if not lines:
        return "\nNo job changed its GPUs.\n"
    return f"""
## What changed

| job | change | GPUs | why |
| ---: | --- | --- | --- |
{"".join(lines)}"""


def _worth(done: RecordedRound) -> dict[int, float]:
    """Return what the round is worth per GPU to each job that bids, by job id."""
    worth: dict[int, float] = {}
    for bid in done.plan.bids:
        worth.setdefault(bid.job_id, bid.utility / bid.allocation.gpus)
    return worth


def _bids(header: RunHeader, done: RecordedRound) -> str:
    """Describe the bids for the coming round, highest first."""
    worth = _worth(done)
    ranked = sorted(worth, key=lambda job_id: -worth[job_id])
    if not ranked:
        return ""
    lines = [
        f"| {_job(job_id, header)} | {done.active[job_id].gang} | {worth[job_id]:.3g} "
        f"| {' '.join(map(str, done.plan.placement.get(job_id, ()))) or 'waits'} |\n"
        for job_id in ranked[:MOST_BIDS]
    ]
    more = f"\n{len(ranked) - MOST_BIDS} more bid less.\n" if len(ranked) > MOST_BIDS else ""
    return f"""
## Bids

| job | GPUs | worth of the round per GPU | has GPUs |
| ---: | ---: | ---: | --- |
{"".join(lines)}{more}"""


def draw_gantt(rounds: Sequence[RoundRecord], gpus: int) -> str:
    """Draw who held which GPUs in consecutive rounds, as SVG: a column a round, a row a GPU."""
    wide, high, left, below = 24, max(2, min(12, 480 // gpus)), 44, 20
    boxes = []
    for column, kept in enumerate(rounds):
        for lease in kept.leases:
            colour = COLOURS[lease.job_id % len(COLOURS)]
            boxes += [
                f'<rect x="{left + column * wide}" y="{gpu * high}" width="{wide - 1}" '
                f'height="{high - (high > 3)}" fill="{colour}"><title>job {lease.job_id}, '
                f"GPU {gpu}, round {kept.round}</title></rect>"
                for gpu in lease.gpus
            ]
    width, height = left + len(rounds) * wide, gpus * high + below
    words = (
        f'<text x="0" y="10">GPU 0</text><text x="0" y="{gpus * high}">GPU {gpus - 1}</text>'
        f'<text x="{left}" y="{height - 4}">round {rounds[0].round}</text>'
        f'<text x="{width}" y="{height - 4}" text-anchor="end">round {rounds[-1].round}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="10">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(boxes)}{words}</svg>'
    )
