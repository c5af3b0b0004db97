"""Slurm's accounts as tenants: their fair shares are budgets in the market."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from containers.slurm.commands import Commands
from containers.slurm.parsing import SlurmAway

PARENTS = "parent"
"""Share of an account whose users share with those of its parent."""
LEAST_BUDGET = 1e-3
"""Budget of accounts without a share, whose jobs run when no other wants the GPUs."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account: its parent, empty for the root, and its share among the parent's accounts."""

    parent: str
    share: str


def ask_accounting(
    commands: Commands, what: str, *columns: str, where: str = ""
) -> list[dict[str, str]]:
    """Ask the accounting for columns, whose values hold no free text.

    Raises:
        Refused: Slurm refuses to tell.
        SlurmAway: The accounting does not answer, or not intelligibly.
    """
    asked = [what, *([where] if where else []), f"format={','.join(columns)}"]
    text = commands.call("sacctmgr", "--parsable2", "--noheader", "show", *asked)
    rows = [line.split("|") for line in text.splitlines()]
    if any(len(row) != len(columns) for row in rows):
        raise SlurmAway(f"sacctmgr printed other columns than {', '.join(columns)}")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def list_budgets(commands: Commands, cluster: str) -> dict[str, float]:
    """Return the budgets of a Slurm cluster's accounts that have users, but for `root`.

    Raises:
        Refused: Slurm refuses to tell.
        SlurmAway: The accounting does not answer, or not intelligibly.
    """
    columns = ("Account", "ParentName", "User", "Fairshare")
    rows = ask_accounting(commands, "association", *columns, where=f"cluster={cluster}")
    accounts = {
        row["Account"]: Account(row["ParentName"], row["Fairshare"])
        for row in rows
        if not row["User"]
    }
    with_users = {row["Account"] for row in rows if row["User"]}
    used = {name for name in with_users & accounts.keys() if accounts[name].parent}
    return find_budgets(accounts, used)


def find_budgets(accounts: Mapping[str, Account], used: set[str]) -> dict[str, float]:
    """Return the budgets of some accounts: their part of the whole over the mean part.

    An account's part is the product of its share, and its ancestors', among the shares of their
    siblings, as in Slurm; users' shares within an account are left out.

    Raises:
        SlurmAway: A share is neither a number nor `parent`.
    """
    parts = {
        name: prod(_among_siblings(accounts, one) for one in _lineage(accounts, name))
        for name in used
    }
    mean = sum(parts.values()) / len(parts) if parts else 0.0
    if not mean:
        return dict.fromkeys(sorted(parts), 1.0)
    return {name: max(round(parts[name] / mean, 3), LEAST_BUDGET) for name in sorted(parts)}


def _lineage(accounts: Mapping[str, Account], name: str) -> list[str]:
    """Return an account and its ancestors, without the root."""
    found: list[str] = []
    while name in accounts and accounts[name].parent and name not in found:
        found.append(name)
        name = accounts[name].parent
    return found


def _among_siblings(accounts: Mapping[str, Account], name: str) -> float:
    own = accounts[name]
    if own.share == PARENTS:
        return 1.0
    siblings = [one for one in accounts.values() if one.parent == own.parent]
    whole = sum(_read_share(one.share) for one in siblings if one.share != PARENTS)
    return _read_share(own.share) / whole if whole else 0.0


def _read_share(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise SlurmAway(f"sacctmgr printed {text[:80]!r}, which is no share")
    return int(text)
