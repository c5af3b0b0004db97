"""kill -9 of submitters and of a service's scheduler at every boundary.

    python -m harness.attacks.service_kills [--every 1] [--seed 0] [--json]

A scene hands jobs and commands to a service on a virtual cluster, a round after each, and is acted
again and again, each time in a process of its own that kills itself at the first, the second, …
boundary: before a statement or a commit of the inbox's database, after a transaction, and at every
write, flush, rename and removal of a file by Python (`harness.attacks.boundaries`). `lost`
counts the kills after which an acknowledged entry was missing or doubled, or a round was lost;
`noticed` those after which `audit` finds something until the service goes on. Then the scene is
acted to its end with the same keys, every other time after a second kill at a boundary that SEED
draws. `not_once` counts those in which an entry was then not taken in by
exactly one round or a command had no effect, `unclean` those in which `audit` finds something, and
`differs` those whose replay differs.

With `--every N`, each Nth boundary only. Exit code 1 if a count but `noticed` is not 0.
"""

import mmap
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import sqlalchemy.dialects.sqlite  # noqa: F401 (what each process would import by itself)

from flows.explain.replay import replay
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from harness.attacks import promises
from harness.attacks.kills import dies, forked, walk_all
from harness.attacks.promises import Acknowledged
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from warehouse.inbox.entries import SUBMIT, Submission
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

FIGURES = ("noticed", "lost", "not_once", "unclean", "differs")

OPTIONS = ServiceOptions(policy="srtf", gpus=4, speed=100_000.0, driver="plain")
LONG = JobSpec(0, "conv-small", 32, 128, Demand.gang(2), Mode.GNS, 400, 40_000, 0.0, "a", name="x")
"""A job that outlasts a scene."""


def requests() -> list[Submission]:
    """The requests, in order; entry 6 is refused."""
    jobs = [replace(LONG, demand=Demand.gang(gpus)) for gpus in (2, 2, 1, 1)]
    commands = [
        (CommandKind.HOLD, 2),
        (CommandKind.DRAIN, 3),
        (CommandKind.RELEASE, 2),
        (CommandKind.CANCEL, 3),
        (CommandKind.REQUEUE, 1),
        (CommandKind.UNCORDON, 3),
    ]
    made = [Submission(SUBMIT, job=job) for job in jobs]
    made += [
        Submission(CommandKind.BUDGET.value, target=1, value=2.0),
        Submission(SUBMIT, job=replace(LONG, demand=Demand.gang(8))),
        *(Submission(kind.value, target=target) for kind, target in commands),
    ]
    return [replace(request, key=f"k{at}") for at, request in enumerate(made)]


REQUESTS = requests()

ACKNOWLEDGED = mmap.mmap(-1, 2)
"""Numbers of acknowledged requests and rounds, shared by all processes."""


def accept(inbox: Inbox, most: int) -> None:
    """Hand in the first requests singly, and then the last two together."""
    for at, request in enumerate(REQUESTS[: most - 2]):
        inbox.accept([request])
        acknowledged(at + 1)
    inbox.accept(REQUESTS[most - 2 : most])
    acknowledged(most)


def acknowledged(requests: int) -> None:
    ACKNOWLEDGED[0] = max(ACKNOWLEDGED[0], requests)


def hand_in(warehouse: Path) -> None:
    """A submitter; no scheduler runs."""
    with Inbox(warehouse) as inbox:
        accept(inbox, len(REQUESTS))


def begin(warehouse: Path) -> None:
    """A service's first start, with jobs waiting, and its first round."""
    with Inbox(warehouse) as inbox:
        accept(inbox, 4)
        go(warehouse, inbox, [])


def whole(warehouse: Path) -> None:
    """A service with a request before each round."""
    with Inbox(warehouse) as inbox:
        go(warehouse, inbox, REQUESTS)


def go(warehouse: Path, inbox: Inbox, handed: list[Submission]) -> None:
    with open_run(warehouse, inbox, OPTIONS) as run:
        for at, request in enumerate(handed):
            inbox.accept([request])
            acknowledged(at + 1)
            schedule(run, warehouse, rounds=1)
            ACKNOWLEDGED[1] = run.state.round
        while run.state.source_position.entries < inbox.last():
            schedule(run, warehouse, rounds=1)
            ACKNOWLEDGED[1] = run.state.round


def nothing(warehouse: Path) -> None:
    pass


SCENES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], int]] = {
    "a submitter": (nothing, hand_in, len(REQUESTS)),
    "a first start": (nothing, begin, 4),
    "a service": (begin, whole, len(REQUESTS)),
}
"""By name: the preparation, the scene, and the requests that are there in the end."""


def main() -> int:
    return walk_all(__doc__, SCENES, walk, FIGURES)


def walk(name: str, place: Path, every: int, rng: Random) -> Counter[str]:
    """Act a scene with a kill at each boundary; returns counts of failures."""
    before, scene, handed = SCENES[name]
    made, killed = place / "made", place / "killed"
    made.mkdir(parents=True)
    forked(lambda: before(made))
    figures = Counter[str]()
    for at in count(every // 7, every):  # sparse walks, too, begin within a scene
        shutil.rmtree(killed, ignore_errors=True)
        shutil.copytree(made, killed)
        ACKNOWLEDGED[:] = bytes(2)
        if not dies(scene, killed, at):
            return figures
        problems = forked(lambda: list(after_kill(killed)))
        if rng.random() < 0.5:
            dies(scene, killed, rng.randrange(200))
        forked(lambda: scene(killed))
        problems += forked(lambda: list(after_all(killed, handed)))
        if {*problems} & {*FIGURES[1:]}:
            print(f"{name}, boundary {at}: {', '.join(problems)}", file=sys.stderr)
        figures.update(["kills", *problems])
    raise AssertionError("boundaries end")


def answered(requests: int) -> list[Acknowledged]:
    """The acknowledgements of the first requests."""
    return [
        Acknowledged(request.key, request.kind, request.target, at + 1)
        for at, request in enumerate(REQUESTS[:requests])
    ]


def after_kill(warehouse: Path) -> Iterator[str]:
    """The problems right after a kill."""
    requests, rounds = ACKNOWLEDGED[:]
    wrong = list(promises.lost(warehouse, answered(requests)))
    with Inbox(warehouse) as inbox:
        run = inbox.run
    if run:
        wrong += promises.not_once(warehouse, run, all_taken=False)
        wrong += ["rounds are lost"] * (len(Reader(warehouse).records(run)) < rounds)
        if audit(warehouse, run).findings:
            yield "noticed"
    yield from complained("lost", wrong)


def after_all(warehouse: Path, handed: int) -> Iterator[str]:
    """The problems after the scene has come to its end."""
    with Inbox(warehouse) as inbox:
        run = inbox.run
    wrong = list(promises.lost(warehouse, answered(handed)))
    if len(promises.in_inbox(warehouse)) != handed:
        wrong.append("something else is in the inbox")
    yield from complained("lost", wrong)
    if run:
        wrong = list(promises.not_once(warehouse, run, all_taken=True))
        wrong += promises.without_effect(warehouse, run, all_ended=False)
        yield from complained("not_once", wrong)
        yield from complained("unclean", list(map(str, audit(warehouse, run).findings)))
        yield from complained("differs", list(map(str, replay(run, warehouse).differences)))


def complained(figure: str, wrong: list[str]) -> Iterator[str]:
    """The figure, if there are problems."""
    for problem in wrong[:3]:
        print(f"  {problem}", file=sys.stderr)
    if wrong:
        yield figure


if __name__ == "__main__":
    sys.exit(main())
