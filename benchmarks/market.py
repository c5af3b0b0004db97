"""Compare the market with the published market, a simple rule, and itself with parts removed.

    python -m benchmarks.market [DATA] [--seeds 10-19] [--ablations] [--json]

Workloads are, for each seed, 120 generated jobs on 32 GPUs that arrive 45 s apart and 240 on 64
GPUs 22.5 s apart: the generator's defaults at two and four times their size. Ablations run on the
public traces (DATA, by default `shockwave` in the folder that the environment variable
SHOCKWAVE_DATA names). Everything runs with its defaults. `limit` is the makespan that no scheduler
can beat: the larger of the last arrival plus isolated run time, and of t plus the work that arrives
from t on per GPU.
"""

import argparse
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.workloads import TRACES, gpus_of, open_workload, trace_folder
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from harness.markdown import markdown
from predictor.basis import Basis
from tasks.record import Parameter, Settings, make_pool
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics

GENERATED = (32, 64)
"""GPUs of the generated workloads."""

RIVALS = ("shockwave", "slack", "srtf", "shockwave-published")

ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "oracle forecasts": {"forecasts": Basis.ORACLE},
    "reactive forecasts": {"forecasts": Basis.REACTIVE},
    "no due dates (λ = 0)": {"set": {"lateness": 0.0}},
    "λ = 1.5": {"set": {"lateness": 1.5}},
    "λ = 24": {"set": {"lateness": 24.0}},
    "no preemption hysteresis beyond restarts": {"set": {"stay": 0.0}},
    "preemption hysteresis of 2": {"set": {"stay": 2.0}},
    "no bound on postponement": {"set": {"overdue": 1e9}},
    "published objective": {"policy": "shockwave-published"},
}

HEADS = ("makespan / limit", "mean JCT (s)", "worst ρ", "unfair", "restarts / job")


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
    parser.add_argument(
        "--ablations", action="store_true", help="remove one part after another, on the traces"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    if options.ablations:
        names = [*TRACES]
        asked = {
            label: [Case(name, _settings(name, **changes)) for name in names]
            for label, changes in ABLATIONS.items()
        }
    else:
        seeds = range(first, last + 1)
        names = [f"generated {gpus} {seed}" for seed in seeds for gpus in GENERATED]
        asked = {
            policy: [Case(name, _settings(name, policy=policy)) for name in names]
            for policy in RIVALS
        }
    results = _run(asked, options.data)
    if options.json:
        for label, rows in results.items():
            for name, row in zip(names, rows, strict=True):
                print(json.dumps({"variant": label, "workload": name} | row))
        return
    head = "Variant" if options.ablations else f"{len(names)} workloads"
    print(markdown((head, *HEADS), [_mean(label, rows) for label, rows in results.items()]), end="")


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


def _mean(label: str, rows: list[dict[str, float]]) -> list[str]:
    """A row of the table: means over workloads."""
    mean = {name: fmean(row[name] for row in rows) for name in rows[0]}
    return [
        label if " " in label else f"`{label}`",
        f"{mean['makespan/limit']:.3f}",
        f"{mean['jct_s']:,.0f}",
        f"{mean['worst_rho']:.2f}",
        f"{mean['unfair_%']:.1f}%",
        f"{mean['restarts/job']:.2f}",
    ]


if __name__ == "__main__":
    main()
