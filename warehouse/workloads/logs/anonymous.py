"""Logs without names: users, accounts and jobs are numbered."""

from collections.abc import Callable
from dataclasses import replace

from predictor.errors import InputError
from warehouse.wording import counted
from warehouse.workloads.logs.log import NOT_ASKED, SKIP, STEPS, ClusterLog


def anonymize(log: ClusterLog) -> ClusterLog:
    """Return a log in which `user-1`, `account-1` and `name-1` stand for names.

    Names are numbered in the order of the file. Ids, places, models, the words behind a state
    (`CANCELLED by 1042`) and the name of the file are left out.
    """
    users, accounts, names = _number("user"), _number("account"), _number("name")
    jobs = tuple(
        replace(
            job,
            user=users(job.user),
            tenant=accounts(job.tenant),
            name=names(job.name),
            state=job.state.split(" ")[0],
            model=None,
            key="",
            place="",
        )
        for job in log.jobs
    )
    lines = sum(n for reason, n in log.left_out.items() if reason not in (NOT_ASKED, STEPS))
    source = "a log" + (f", {counted(lines, 'line')} left out" if lines else "")
    return ClusterLog(source, jobs, log.left_out, log.unknown)


def _number(kind: str) -> Callable[[str], str]:
    """Return a function that gives each name a number; an empty one stays empty."""
    numbers: dict[str, int] = {}
    return lambda name: name and f"{kind}-{numbers.setdefault(name, len(numbers) + 1)}"


def hide_text(error: InputError) -> InputError:
    """Return the error of a reader without what it quotes from the file."""
    return InputError(
        error.place,
        "cannot be read; what is wrong is not shown, because it may have names",
        f"read it without anonymous to see it, or {SKIP}",
    )
