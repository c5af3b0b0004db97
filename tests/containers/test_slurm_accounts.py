"""Fair shares of Slurm's accounts as budgets of tenants."""

import pytest

from containers.slurm.accounts import Account, find_budgets, list_budgets
from containers.slurm.commands import Commands
from containers.slurm.parsing import SlurmAway
from harness.slurm import Slurm


def test_budgets_are_parts_of_the_whole_over_their_mean() -> None:
    accounts = {
        "root": Account("", "1"),
        "lab": Account("root", "3"),
        "guests": Account("root", "1"),
        "vision": Account("lab", "1"),
        "speech": Account("lab", "2"),
        "friends": Account("guests", "parent"),
        "former": Account("guests", "0"),
    }
    # 3/4 * 1/3, 3/4 * 2/3, 1/4, 1/4, 0: 0.25 is the mean.
    used = {"vision", "speech", "guests", "friends", "former"}
    assert find_budgets(accounts, used) == {
        "former": 0.001,
        "friends": 1.0,
        "guests": 1.0,
        "speech": 2.0,
        "vision": 1.0,
    }


def test_accounts_without_shares_are_alike() -> None:
    accounts = {"root": Account("", "1"), "a": Account("root", "0"), "b": Account("root", "0")}
    assert find_budgets(accounts, {"a", "b"}) == {"a": 1.0, "b": 1.0}
    assert find_budgets(accounts, set()) == {}
    with pytest.raises(SlurmAway, match="which is no share"):
        find_budgets({"root": Account("", "1"), "a": Account("root", "?")}, {"a"})


def test_budgets_follow_the_shares_of_a_slurm(lab: Slurm) -> None:
    commands = Commands(lab.commands("operator"))
    assert list_budgets(commands, "lab") == {"production": 1.0, "research": 1.0}
    lab.run("sacctmgr", "-i", "modify", "account", "research", "set", "Fairshare=3")
    try:
        budgets = list_budgets(commands, "lab")
    finally:
        lab.run("sacctmgr", "-i", "modify", "account", "research", "set", "Fairshare=1")
    assert budgets == {"production": 0.5, "research": 1.5}
