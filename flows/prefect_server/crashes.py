"""Flow runs whose process died become Crashed.

A flow run is labelled with its process. A process of the same host that finds it unfinished, and
the labelled process gone, ends it. Flow runs without this label are left alone.

Of a service, only one process on all hosts runs rounds. So it ends what others left unfinished.
"""

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import State
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Completed, Crashed

from tasks.run import Run

LABEL = "shockwave.process"
"""Label of a flow run that identifies its process."""

ENDED = "Its process ended. Records of complete rounds are not affected."
"""Message of the state Crashed."""

RECORDED = "The round was recorded. Prefect's server did not answer at its end."
"""Message of the state Completed of a flow run that was found unfinished."""

LOOK_SECONDS = 10.0
"""Interval at which a service looks for flow runs of dead processes. An engineering choice."""

PAGE = 200
"""Flow runs per request; the server's maximum."""

UNFINISHED = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]


def identify_process(pid: int | None = None) -> str:
    """Return what identifies a process, by default this one, even after its id is used again.

    A process id has a meaning only in its namespace, and a start time only until the next boot.

    Raises:
        OSError: There is no such process.
    """
    pid = os.getpid() if pid is None else pid
    # The command's name, in parentheses, may contain spaces. The start time is field 22.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":  # it ended, and its parent has not noticed yet
        raise ProcessLookupError(pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return " ".join((*_identify_host(), boot, str(pid), fields[19]))


def _identify_host() -> tuple[str, str]:
    return socket.gethostname(), os.readlink("/proc/self/ns/pid")


def is_dead(process: str) -> bool:
    """Return whether an identified process is known to be dead: False for one of another host."""
    if not is_here(process):
        return False
    pid = process.split(" ")[3]
    with suppress(OSError):
        return identify_process(int(pid)) != process
    return True


def is_here(process: str) -> bool:
    """Return whether an identified process is of this host and its namespace of process ids."""
    return tuple(process.split(" ")[:2]) == _identify_host()


def claim(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:
    """Label a flow run with this process; a hook of flows, called once they run."""
    with get_client(sync_client=True) as client:
        client.update_flow_run_labels(flow_run.id, {LABEL: identify_process()})


def crash_dead_runs(client: SyncPrefectClient) -> int:
    """Set unfinished flow runs of dead processes to Crashed; return their number."""
    dead = [run for run in _read_unfinished(client) if is_dead(str(run.labels[LABEL]))]
    for run in dead:
        _end(client, run, Crashed(message=ENDED))
    return len(dead)


def settle_rounds(client: SyncPrefectClient, run: Run) -> None:
    """End the unfinished flow runs of a run's rounds, before this process runs its next round.

    A dead process left them, or this process while the server did not answer. Recorded rounds
    become Completed, others Crashed.
    """
    for each in _read_unfinished(client, run.name):
        process = str(each.labels[LABEL])
        is_ended = process == identify_process() or is_dead(process)
        if is_ended or (run.header.service and not is_here(process)):
            is_recorded = each.parameters.get("number", run.state.round) < run.state.round
            _end(
                client, each, Completed(message=RECORDED) if is_recorded else Crashed(message=ENDED)
            )


def _end(client: SyncPrefectClient, run: FlowRun, state: State[Any]) -> None:
    """End a flow run and its unfinished task runs."""
    steps = client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])),
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=UNFINISHED))
        ),
    )
    for step in steps:
        client.set_task_run_state(step.id, state, force=True)
    client.set_flow_run_state(run.id, state, force=True)


def _read_unfinished(client: SyncPrefectClient, tag: str | None = None) -> list[FlowRun]:
    """Return the labelled flow runs that have not ended, by default those of all runs."""
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=UNFINISHED))
    tags = FlowRunFilterTags(all_=[tag]) if tag else None
    found = list[FlowRun]()
    while page := client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=state, tags=tags),
        sort=FlowRunSort.START_TIME_ASC,
        limit=PAGE,
        offset=len(found),
    ):
        found += page
    return [run for run in found if LABEL in run.labels]


def watch_processes() -> None:
    """Crash flow runs of dead processes from now on, in a thread."""
    Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while True:
        # The server may be away; the next look tries again.
        with suppress(Exception), get_client(sync_client=True) as client:
            crash_dead_runs(client)
        time.sleep(LOOK_SECONDS)
