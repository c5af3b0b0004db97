"""How users' Slurm jobs come in, while they or Slurm change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.runs.queue_run import read_kill_seconds
from flows.scheduler import queue_intake
from flows.scheduler.intake import InboxSource
from flows.scheduler.options import ServiceOptions
from flows.scheduler.queue_intake import QueueSource
from flows.supervisor.service import _longest_wait
from predictor.errors import InputError
from tasks.sources import Intake, SourcePosition
from tests.containers.slurm_scripts import INVENTORY, Scripts
from tests.containers.test_slurm_queue import line
from warehouse.inbox.inbox import Inbox

pytestmark = pytest.mark.process

SHOWN = "JobId=12 JobName=x UserId=alice(1) Partition=gpu AllocNode:Sid=h:1 Comment= StdErr=/a \n"


class Service:
    """The intake of a service, round by round; its scheduler may be started again."""

    def __init__(self, folder: Path) -> None:
        self.scripts, self.inbox = Scripts(folder), Inbox(folder / "warehouse")
        self.scripts.say(squeue=line("12"), scontrol=SHOWN)
        self._taken, self._clock = SourcePosition(), 0.0
        self.start()

    def start(self) -> None:
        """Start the scheduler, which knows none of the jobs."""
        self.brain = self.scripts.brain()
        entries = InboxSource(
            self.inbox,
            self.brain.clock.now,
            1.0,
            lambda spec, terms: self.source.check(spec),
            lambda node, before: None,
        )
        commands = self.scripts.commands
        self.source = QueueSource(self.inbox, entries, self.brain, commands, INVENTORY)

    def take(self, look: bool = True) -> Intake:
        """Take in what a round does."""
        if look:
            self.brain.look()
        self._clock += 1.0
        found = self.source.until(self._clock, self._taken)
        self._taken = self._taken.after(self._clock, found.jobs, found.commands)
        return found


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for seconds in ("FIRST_SECONDS", "SHARES_AGAIN_SECONDS"):
        monkeypatch.setattr(queue_intake, seconds, 0.0)
    made = Service(tmp_path)
    with made.inbox:
        yield made


def test_a_change_between_two_schedulers_is_another_declaration(service: Service) -> None:
    service.brain.look()
    service.source.idle_until(SourcePosition())  # submitted, not taken in
    service.scripts.say(squeue=line("12", TimeLimit="10:00") + line("13"))
    service.start()
    taken = service.take()
    assert {job.max_seconds for job in taken.jobs} == {720.0, 7 * 86_400.0 + 120.0}
    assert [command.kind for command in taken.commands] == ["refused"]


@pytest.mark.parametrize("how", ["not looked", "away", "left out"])
def test_what_was_refused_in_passing_comes_in_later(service: Service, how: str) -> None:
    service.brain.look()
    service.source.idle_until(SourcePosition())
    service.start()
    if how == "away":
        service.scripts.fail(scontrol="Unable to contact slurm controller")
    if how == "left out":
        service.scripts.say(squeue=line("13"))
    taken = service.take(look=how != "not looked").jobs
    assert not [job for job in taken if "SLURM_JOB_ID=12" in job.environment]
    service.scripts.say(squeue=line("12"), scontrol=SHOWN)
    (job,) = service.take().jobs
    assert "SLURM_JOB_ID=12" in job.environment
    service.brain.admit([job])
    assert service.take() == Intake()


def test_a_job_that_was_held_comes_in_again(service: Service) -> None:
    (first,) = service.take().jobs
    service.brain.admit([first])
    service.scripts.say(squeue=line("12", Reason="JobHeldUser"))
    (event,) = service.brain.observe().finished
    assert event.ends_job
    service.brain.reap([event.job_id])
    assert service.take() == Intake()
    service.scripts.say(squeue=line("12"))
    (again,) = service.take().jobs
    assert again.environment == first.environment


def test_budgets_follow_fair_shares(service: Service) -> None:
    def shares(research: int) -> str:
        rows = ("root|||1", f"research|root||{research}", "production|root||1")
        return "\n".join([*rows, "research|root|alice|2", "production|root|bob|1"])

    service.scripts.say(sacctmgr=shares(3))
    service.scripts.fail(scontrol="Unable to contact slurm controller")
    assert service.take().commands == ()
    service.scripts.say(scontrol=SHOWN)
    changed = [command.terms for command in service.take().commands]
    assert {terms.tenant: terms.budget for terms in changed} == {"production": 0.5, "research": 1.5}
    service.inbox.tenant("research", {"budget": 9.0}, by="root")
    service.start()
    assert [command.terms.budget for command in service.take().commands] == [9.0]
    service.scripts.say(sacctmgr=shares(1))
    service.start()
    changed = [command.terms for command in service.take().commands]
    assert {terms.tenant: terms.budget for terms in changed} == {"production": 1.0, "research": 1.0}


@pytest.mark.parametrize("name", ["x" * 101, "a\tb"])
def test_an_account_that_can_be_no_tenant_is_left_out(service: Service, name: str) -> None:
    rows = ("root|||1", f"{name}|root||1", "research|root||3")
    users = (f"{name}|root|bob|1", "research|root|alice|1")
    service.scripts.say(sacctmgr="\n".join([*rows, *users]))
    taken = service.take()
    assert [command.terms.tenant for command in taken.commands] == ["research"]
    assert len(taken.jobs) == 1


def test_jobs_come_in_the_order_of_their_submission(service: Service) -> None:
    listed = ("13", "4_10", "9", "4_2")  # Slurm lists them by priority
    rows = [line(one, SubmitTime="1700000000") for one in listed]
    service.scripts.say(squeue="".join([line("20", SubmitTime="1700000001"), *rows]))
    taken = [job.environment[0] for job in service.take().jobs]
    assert taken == [f"SLURM_JOB_ID={one}" for one in ("4_2", "4_10", "9", "13", "20")]


def test_an_array_is_asked_for_once(service: Service) -> None:
    service.scripts.say(squeue="".join(line(f"4_{task}") for task in range(20)))
    assert len(service.take().jobs) == 20
    about_jobs = [order for order in service.scripts.orders() if " show job " in order]
    assert about_jobs == ["scontrol --oneliner show job 4_0"]


def test_the_supervisor_waits_while_slurm_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, options = Scripts(tmp_path), ServiceOptions(policy="fifo", partition="gpu")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    scripts.fail(scontrol="Unable to contact slurm controller")
    unknown = _longest_wait(options)
    with pytest.raises(InputError, match="Unable to contact"):
        read_kill_seconds(scripts.commands)
    scripts.say(scontrol="KillWait                = 400 sec\n")
    assert _longest_wait(options) == unknown + 800.0
