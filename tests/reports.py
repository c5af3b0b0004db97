"""A warehouse for tests of reports, with names that would break a careless page."""

from dataclasses import replace
from pathlib import Path

from tasks.record import Start
from tests.runs import Made, ended, start_of, write
from warehouse.report import Report
from warehouse.report.figure import Figure

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028'\"{{7*7}}"


def hostile(start: Start) -> Start:
    """The same run, of jobs, tenants and a trace that are named by an attacker."""
    specs = tuple(replace(spec, tenant=HOSTILE, model=HOSTILE) for spec in start.workload.specs)
    return start_of(
        replace(start.header, source=HOSTILE),
        replace(start.workload, specs=specs, source=HOSTILE),
    )


def store(warehouse: Path, made: Made, *, rounds: int | None = None) -> str:
    """Write a run, or its first rounds only."""
    return write(warehouse, hostile(made.start), made.rounds[:rounds], compact=rounds is None)


def fill(warehouse: Path) -> list[str]:
    """Runs under Shockwave (two seeds), SRTF and Themis."""
    made = [ended(policy) for policy in ("shockwave", "srtf", "themis")]
    other = ended("shockwave", seed=8)
    return [store(warehouse, run) for run in (*made, other)]


def figure(report: Report, key: str) -> Figure:
    """A report's figure of that name."""
    (found,) = [figure for figure in report.figures if figure.key == key]
    return found
