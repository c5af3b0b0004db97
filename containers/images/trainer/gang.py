"""The processes of a gang in one container: a supervisor and a worker for each GPU."""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from trainer.errors import DONE, PREEMPTED, InvalidInput, StorageError, TrainerError
from trainer.place import WorkerPlace

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """A request to stop after the current step, by SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> "Stop":
        """Handle the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._take)
        return self

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


Work = Callable[[WorkerPlace, Stop], int]

CRASHED = 1
"""Exit code of a worker that failed, as for any Python program."""
EXPLAINING = (InvalidInput.exit_code, StorageError.exit_code)
"""Exit codes that explain why other workers lost their gang."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def supervise(place: WorkerPlace, stop: Stop, work: Work) -> int:
    """Run each worker of this container in its own process; all get the signals received so far.

    Returns:
        0 or 75 if all workers return these codes, else the code of a failed worker.
    """
    folder = tempfile.mkdtemp(prefix="gang-", dir="/tmp")
    # Blocked until a handler knows all workers, so that none misses a signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        workers: list[int] = []
        for local in range(place.workers):
            rendezvous = os.path.join(folder, "rendezvous")
            own = WorkerPlace(place.node, place.nodes, local, place.workers, rendezvous)
            workers.append(_fork(own, work, os.getpid()))

        def forward(number: int, frame: object) -> None:
            _kill(workers, signal.SIGTERM)

        for number in SIGNALS:
            signal.signal(number, forward)
        if stop.requested:
            _kill(workers, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return _wait(workers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_guarded(work: Callable[[], int]) -> int:
    """Run the work; return its exit code, and print a line for known errors or a traceback."""
    try:
        return work()
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return CRASHED


def _fork(place: WorkerPlace, work: Work, parent: int) -> int:
    """Fork a worker, which starts at once since PyTorch is already loaded."""
    child = os.fork()
    if child:
        return child
    code = CRASHED
    try:
        stop = Stop().listen()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # If its supervisor is killed, a worker must not train on beside its successor.
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            code = run_guarded(lambda: work(place, stop))
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(workers: list[int]) -> int:
    """Wait for all workers; if one fails, kill the others, since they cannot continue."""
    codes: list[int] = []
    while workers:
        child, status = os.wait()
        if child not in workers:
            continue  # as PID 1, the supervisor inherits others' children
        workers.remove(child)
        code = os.waitstatus_to_exitcode(status)
        codes.append(code if code >= 0 else 128 - code)
        if codes[-1] not in (DONE, PREEMPTED):
            _kill(workers, signal.SIGKILL)
    for known in EXPLAINING:
        if known in codes:
            return known
    failed = [code for code in codes if code not in (DONE, PREEMPTED)]
    return failed[0] if failed else max(codes)


def _kill(workers: list[int], number: signal.Signals) -> None:
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, number)
