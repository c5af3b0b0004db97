"""Compare the market with the published market, a simple rule, and itself with parts removed.

    python -m benchmarks.market [DATA] [--seeds 10-19] [--ablations] [--plot FILE] [--json]

Workloads are the two public traces (DATA, by default `shockwave` in the folder that the
environment variable SHOCKWAVE_DATA names) and, for each seed, 120 generated jobs on 32 GPUs
that arrive 45 s apart and 240 on 64 GPUs 22.5 s apart: the generator's defaults at two and
four times their size. Everything runs with its defaults. `jct / published` is against
Shockwave as its authors published it on the same workload; `limit` is the makespan that no
scheduler can beat: the larger of the last arrival plus isolated run time, and of t plus the
work that arrives from t on per GPU.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.workloads import TRACES, gpus_of, open_workload, trace_folder
from flows.cli.output import print_table
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from predictor.basis import Basis
from tasks.record import Parameter, Settings, make_pool
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics

GENERATED = (32, 64)
"""GPUs of the generated workloads."""

RIVALS = ("shockwave", "slack", "shockwave-published")

ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "oracle forecasts": {"forecasts": Basis.ORACLE},
    "reactive forecasts": {"forecasts": Basis.REACTIVE},
    "fairness 0": {"set": {"fairness": 0.0}},
    "fairness 1": {"set": {"fairness": 1.0}},
    "no due dates": {"set": {"lateness": 0.0}},
    "least preemption hysteresis": {"set": {"stay": 0.0}},
    "no bound on postponement": {"set": {"overdue": 1e9}},
    "published objective": {"policy": "shockwave-published"},
}

FRONT = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""Values of `lateness` for the plot."""


@dataclass(frozen=True)
class Case:
    """A run to make: a workload by name, and its options."""

    workload: str
    settings: Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = trace_folder()
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--seeds", default="10-19", help="FIRST-LAST of generated workloads")
    parser.add_argument("--ablations", action="store_true", help="remove one part after another")
    parser.add_argument("--plot", type=Path, help="write a picture (.svg or .png)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    traces = [*TRACES]
    generated = [
        f"generated {gpus} {seed}" for seed in range(first, last + 1) for gpus in GENERATED
    ]
    if options.ablations:
        names = [*traces, *generated[:6]]
        asked = {
            label: [Case(name, _settings(name, **changes)) for name in names]
            for label, changes in ABLATIONS.items()
        }
    else:
        names = [*traces, *generated]
        asked = {
            policy: [Case(name, _settings(name, policy=policy)) for name in names]
            for policy in RIVALS
        }
    if options.plot:
        asked |= {
            f"lateness {value:g}": [
                Case(name, _settings(name, set={"lateness": value})) for name in names
            ]
            for value in FRONT
        }
        asked |= {
            policy: [Case(name, _settings(name, policy=policy)) for name in names]
            for policy in (*RIVALS, "srtf", "srtf-gpu", "themis", "gavel", "allox")
        }
    results = _run(asked, options.data)
    published = results.get("shockwave-published") or results["published objective"]
    rows = [
        {"variant": label, "workload": name} | row | {"jct/published": row["jct_s"] / base["jct_s"]}
        for label, of_label in results.items()
        for name, row, base in zip(names, of_label, published, strict=True)
    ]
    if options.json:
        for row in rows:
            print(json.dumps(row))
    else:
        table = rows if not options.ablations else []
        for label in results:
            for kind, some in (("public", traces), ("generated", names[len(traces) :])):
                of_kind = [r for r in rows if r["variant"] == label and r["workload"] in some]
                table.append(_mean(of_kind, label, f"{kind}, mean of {len(some)}"))
        print_table(list(table[0]), [list(row.values()) for row in table])
    if options.plot:
        _plot(options.plot, rows)


def _settings(name: str, **changes: object) -> Settings:
    values = changes.pop("set", {})
    assert isinstance(values, dict)
    settings = Settings(policy="shockwave", pools=make_pool(gpus_of(name)))
    parameters = tuple(Parameter(key, value) for key, value in sorted(values.items()))
    return replace(settings, parameters=parameters, **changes)  # type: ignore[arg-type]


def limit(workload: Workload, gpus: int) -> float:
    """The makespan that no scheduler can beat, in seconds."""
    least, work = 0.0, 0.0
    for spec, truth in reversed(list(zip(workload.specs, workload.truths, strict=True))):
        work += spec.demand.least * truth.isolated_seconds
        alone = spec.arrival_seconds + truth.isolated_seconds
        least = max(least, alone, spec.arrival_seconds + work / gpus)
    return least


def _run(asked: dict[str, list[Case]], data: Path) -> dict[str, list[dict[str, float]]]:
    cases = [(case, data) for of_label in asked.values() for case in of_label]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = pool.map(_simulate, cases)
        return {label: [next(results) for _ in of_label] for label, of_label in asked.items()}


def _simulate(job: tuple[Case, Path]) -> dict[str, float]:
    case, data = job
    workload = open_workload(case.workload, data)
    with tempfile.TemporaryDirectory() as folder:
        run = simulate(make_start(workload, case.settings), Path(folder))
        columns, rows = Analytics(Path(folder)).query("FROM run_summary", [run])
    summary = dict(zip(columns, rows[0], strict=True))
    least = limit(workload, case.settings.gpus)
    return {
        "makespan_s": summary["makespan_s"],
        "makespan/limit": summary["makespan_s"] / least,
        "jct_s": summary["mean_jct_s"],
        "worst_rho": summary["worst_rho"],
        "unfair_%": 100 * summary["unfair_fraction"],
        "restarts/job": summary["preemptions"] / summary["jobs"],
    }


def _mean(rows: list[dict[str, Any]], label: str, workload: str) -> dict[str, Any]:
    figures = {
        key: fmean(float(str(row[key])) for row in rows)
        for key in rows[0]
        if key not in ("variant", "workload")
    }
    return {"variant": label, "workload": workload} | figures


def _plot(path: Path, rows: list[dict[str, Any]]) -> None:
    mpl.rcParams["svg.hashsalt"] = "market"
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    front = list(_points(rows, [f"lateness {value:g}" for value in FRONT]))
    axes.plot(
        *zip(*((x, y) for _, x, y in front), strict=True), "o-", label="shockwave, λ from 0 to 12.8"
    )
    others = (*RIVALS, "srtf", "srtf-gpu", "themis", "gavel", "allox")
    for label, x, y in _points(rows, list(others)):
        axes.plot(x, y, "s" if label == "shockwave" else "x", color="black")
        axes.annotate(
            f"{label} (default)" if label == "shockwave" else label,
            (x, y),
            (5, 4),
            textcoords="offset points",
        )
    axes.set_xlabel("makespan / limit")
    axes.set_ylabel("mean JCT / that of Shockwave as published")
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _points(rows: list[dict[str, Any]], labels: list[str]) -> Iterator[tuple[str, float, float]]:
    for label in labels:
        mean = _mean([row for row in rows if row["variant"] == label], label, "")
        yield label, float(str(mean["makespan/limit"])), float(str(mean["jct/published"]))


if __name__ == "__main__":
    main()
