"""Paired differences of a figure, with confidence intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from predictor.errors import InputError, meant
from warehouse.analytics.definitions import query_sql
from warehouse.analytics.intervals import Interval, interval
from warehouse.analytics.questions import Analytics

ALL = "all workloads"
"""Label of differences over the pairs of all workloads."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference of a figure over pairs.

    Attributes:
        change: Mean difference with its 95 % confidence interval.
        less: Number of pairs in which the figure is below the reference.
        more: Number of pairs in which it is above.
    """

    pairs: int
    change: Interval
    less: int
    more: int


def difference(
    pairs: Iterable[tuple[float | None, float | None]], *, percent: bool = False
) -> PairedDifference | None:
    """Return the mean difference of values from their references; None without a pair.

    Args:
        pairs: Values with their references; pairs that lack either are ignored.
        percent: Return percent of the reference, ignoring pairs whose reference is 0.
    """
    known = [(value, base) for value, base in pairs if value is not None and base is not None]
    if percent:
        changes = [100 * (value / base - 1) for value, base in known if base]
    else:
        changes = [value - base for value, base in known]
    if not changes:
        return None
    less, more = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    return PairedDifference(len(changes), interval(changes), less, more)


def reference(policies: Sequence[str], against: str | None) -> str:
    """Return the reference policy of comparisons, by default the first.

    Raises:
        InputError: `against` is none of these policies.
    """
    if against is None:
        return policies[0]
    if against not in policies:
        known = list(dict.fromkeys(policies))
        raise InputError("against", f"{against!r} is none of the policies", meant(against, known))
    return against


def job_by_job(warehouse: Path, base: str, others: Iterable[str]) -> dict[str, PairedDifference]:
    """Return mean differences of JCT, in seconds, from the same jobs in the run `base`.

    Runs that share no ended job with `base` are left out.

    Raises:
        InputError: There is no such run.
        WarehouseError: A file is damaged.
    """
    runs = sorted({base, *others})
    _, rows = Analytics(warehouse).query(query_sql("same_jobs").format(base=base), runs)
    pairs: dict[str, list[tuple[float | None, float | None]]] = {}
    for run, value, reference in rows:
        pairs.setdefault(run, []).append((value, reference))
    found = {run: difference(of) for run, of in pairs.items()}
    return {run: difference for run, difference in found.items() if difference is not None}
