"""The README's picture: twelve jobs on four GPUs, first in first out and under Shockwave.

    python benchmarks/contended.py [OUT]

Writes it to OUT, by default `docs/images/contended.svg`, and prints the figures that go with it.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import altair as alt
import vl_convert

from shockwave import Settings, Source, Warehouse, simulate
from warehouse.report.figure import CONFIG
from warehouse.report.output import write_bytes
from warehouse.report.paper import VEGA_LITE

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "contended.svg"
TITLES = {"fifo": "first in, first out", "shockwave": "Shockwave"}
WAITING, RUNNING = "#d5d9df", "#0072b2"


def panel(records: Warehouse, run: str, policy: str) -> Any:
    """A run's jobs, a line each: grey while they wait, blue while they hold GPUs."""
    jobs = records.jobs(run)[["job_id", "arrival_seconds", "finish_seconds"]]
    leases = records.sql("SELECT job_id, start_seconds, seconds FROM leases", run)
    leases["end_seconds"] = leases["start_seconds"] + leases["seconds"]
    y = alt.Y("job_id:O", title="job, by arrival", axis=alt.Axis(labels=False, ticks=False))
    x = alt.X("start:Q", title="time (h)", scale=alt.Scale(domain=[0, 12]))
    parts = []
    for frame, begin, end, colour in (
        (jobs, "arrival_seconds", "finish_seconds", WAITING),
        (leases, "start_seconds", "end_seconds", RUNNING),
    ):
        rows = [
            {"job_id": int(job), "start": begun / 3600, "end": ended / 3600}
            for job, begun, ended in frame[["job_id", begin, end]].itertuples(index=False)
        ]
        bars = alt.Chart(alt.InlineData(rows)).mark_bar(color=colour, height=9)
        parts.append(bars.encode(x=x, x2="end:Q", y=y))
    return alt.layer(*parts, title=TITLES[policy]).properties(width=310, height=170)


def main(out: Path = PICTURE) -> None:
    """Run both policies, draw, and print their figures."""
    source, settings = Source(jobs=12, seed=4), Settings(round_seconds=600)
    with TemporaryDirectory() as folder:
        records = Warehouse(folder)
        runs = {
            policy: simulate(source, gpus=4, policy=policy, settings=settings, warehouse=folder)
            for policy in TITLES
        }
        drawn = alt.hconcat(*(panel(records, run, policy) for policy, run in runs.items()))
        figures = records.runs(*runs.values())
    spec = {**drawn.to_dict(), "config": CONFIG | {"background": "#ffffff"}}
    write_bytes(out, vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE).encode())
    print(figures[["policy", "makespan_s", "mean_jct_s", "worst_rho", "unfair_fraction"]])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
