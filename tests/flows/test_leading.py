"""Leader election: lock, lease, fencing token, and takeover by a standby."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from containers.runtime import Observation
from flows.scheduler import scheduler
from flows.scheduler.leadership import LeaseSite, lead
from flows.scheduler.process import announce, find_service
from flows.scheduler.scheduler import open_run, schedule
from flows.scheduler.sinks import FencedSink
from flows.supervisor.config import ListenAddress, Service
from harness.waiting import wait_for
from predictor.errors import WarehouseBusy
from solver.inventory import InService
from solver.plan import Plan, SolveReport
from tasks.round import Prediction, dispatch
from tasks.run import Run
from tests.flows.test_scheduler import FAST, JOB
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.lease import Leases, TakenOver
from warehouse.store.durable import lock_run
from warehouse.store.reader import Reader

HOLDER = """
import sys, time
from pathlib import Path
from threading import Event
from containers.runtime import Observation
from flows.scheduler import scheduler
from flows.scheduler.leadership import LeaseSite, lead
with lead(LeaseSite(Path(sys.argv[1]), "", "u", 1.0, 1.0), Event(), print) as leader:
    leader.announce(())
    print(leader.token, flush=True)
    time.sleep(600)
"""


def place(warehouse: Path, seconds: float = 60.0) -> LeaseSite:
    return LeaseSite(warehouse, "", "http://here", 1.0, seconds)


def test_a_lease_has_one_holder_and_each_a_later_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(tmp_path)
    assert leases.last() == (None, True)
    assert leases.take(alone=False) == 1
    assert leases.take(alone=False) is None
    leases.renew(1)
    leases.check(1)
    assert leases.take(alone=True) == 2  # a lock says that its holder has ended
    with pytest.raises(TakenOver, match=rf"process {os.getpid()} of .* has taken over"):
        leases.renew(1)
    with pytest.raises(TakenOver):
        leases.check(1)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert leases.take(alone=True) is None  # a lock here says nothing of holders there
    leases.end(2)
    assert leases.take(alone=False) == 3
    leases.close()


def test_a_process_without_the_lease_touches_no_job_and_writes_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(tmp_path)
    token = leases.take(alone=False)
    assert token
    with Inbox(tmp_path) as inbox, open_run(tmp_path, inbox, FAST) as run:
        inbox.submit(long := replace(JOB, epochs=4000, total_steps=0))
        run.sink = FencedSink(run.sink, partial(leases.check, token))
        schedule(run, tmp_path, rounds=1)
        leases.take(alone=True)
        with pytest.raises(TakenOver):
            schedule(run, tmp_path, rounds=1)
        assert len(Reader(tmp_path).records(run.name)) == 1
    with Inbox(tmp_path) as inbox, open_run(tmp_path, inbox, FAST) as run:
        run.check = partial(leases.check, token)
        touched = list[str]()
        for name in ("withdraw", "reap", "preempt", "launch"):
            monkeypatch.setattr(run.runtime, name, lambda *given, of=name: touched.append(of))
        inbox.submit(long)
        with pytest.raises(TakenOver):
            schedule(run, tmp_path, rounds=1)
        assert touched == []
        seen = Observation(0.0, (), (), ())
        nodes = InService(run.state.inventory(run.header))
        prediction = Prediction(seen, run.state, nodes, {}, (), ())
        with pytest.raises(TakenOver):  # while it was solved
            dispatch(run, prediction, Plan({}, SolveReport("srtf")))
        assert touched == []
    leases.close()


def test_a_scheduler_waits_for_one_that_outlives_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        with open_run(tmp_path, inbox, FAST) as run:
            schedule(run, tmp_path, rounds=1)
        (folder,) = (tmp_path / "records").rglob(f"run={run.name}")
        held = lock_run(folder / ".lock", run.name)
        monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.0)
        tries = []

        def enter() -> AbstractContextManager[Run]:
            tries.append(None)
            if len(tries) == 3:
                os.close(held)
            return open_run(tmp_path, inbox, FAST)

        with scheduler.wait_for_previous_writer(enter) as again:
            assert (again.name, again.state.round, len(tries)) == (run.name, 1, 3)
        monkeypatch.setattr(scheduler, "HANDOVER_SECONDS", -1.0)
        held = lock_run(folder / ".lock", run.name)
        with (
            pytest.raises(WarehouseBusy, match="another process"),
            scheduler.wait_for_previous_writer(lambda: open_run(tmp_path, inbox, FAST)),
        ):
            raise AssertionError("it was let in")
        os.close(held)


@pytest.mark.slow
def test_one_process_leads_and_says_so(tmp_path: Path) -> None:
    said, stop = list[str](), Event()
    with lead(place(tmp_path), stop, said.append) as leader:
        assert leader
        leader.announce(())
        found = find_service(tmp_path)
        assert found
        assert (found.pid, found.ready) == (os.getpid(), True)
        with (
            pytest.raises(WarehouseBusy, match="has a running service at http"),
            lead(place(tmp_path), stop, said.append),
        ):
            pass
        message = rf"service at {found.url} \(process {os.getpid()}\); stop it with shockwave down"
        with pytest.raises(WarehouseBusy, match=message):  # checked before its port
            Service(ListenAddress("127.0.0.1", 4200), "", tmp_path).check()
        stop.set()
        with lead(place(tmp_path), stop, said.append, standby=True) as other:
            assert other is None
    with lead(place(tmp_path), Event(), said.append, standby=True) as next_one:
        assert next_one
        assert next_one.token == 2
    assert said[-1] == "Taking over."


@pytest.mark.slow
def test_a_lease_of_another_machine_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(tmp_path, seconds=0.2)
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "elsewhere")
        assert leases.take(alone=False) == 1
    with lead(place(tmp_path, 0.2), Event(), print) as leader:
        assert leader
        assert leader.token == 2
    monkeypatch.setattr("warehouse.inbox.lease._now", lambda connection: 0.0)
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "elsewhere")
        assert leases.take(alone=False) == 3
    with (
        pytest.raises(WarehouseBusy, match=r"is served by process .* of elsewhere"),
        lead(place(tmp_path, 0.2), Event(), print),
    ):
        pass
    leases.close()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_takes_over_from_a_leader_that_is_killed_or_hangs(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "1\n"
        process.send_signal(number)
        said = list[str]()
        with lead(place(tmp_path, 1.0), Event(), said.append, standby=True) as leader:
            assert leader
            assert leader.token == 2
            found = find_service(tmp_path)
            assert found
            assert found.pid == os.getpid()
        assert process.wait() == -signal.SIGKILL
        hung = number == signal.SIGSTOP
        assert any(line.endswith("killing it.") for line in said) == hung


def test_a_test_of_the_lock_keeps_no_service_from_starting(tmp_path: Path) -> None:
    with announce(tmp_path, "u", 1.0):
        assert wait_for(lambda: find_service(tmp_path), bool)
    assert find_service(tmp_path) is None
