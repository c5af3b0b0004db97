"""Every policy on the public traces, with the cost of its commands.

    python -m benchmarks.policies [DATA] [--policies all] [--json]

Three workloads: the public traces of 120 jobs on 32 GPUs and 220 on 64, and 900 generated jobs on
256 GPUs that arrive 1.3 times as fast as they could be served. DATA is the folder with the public
traces, by default `shockwave` in the folder that the environment variable SHOCKWAVE_DATA names.
The published policy has its authors' parameters for each trace, all others have their defaults. The
cost is the processor time of the whole command, from the start of Python to the table. Beside it
are recorded wall times of the published simulator on another machine of two cores.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.conformance import CASES, NAMES, Case
from harness.markdown import markdown
from solver.policies import POLICIES

RUN = (sys.executable, "-c", "from flows.cli.main import main; main()", "simulate", "--json")
GENERATED = ("--jobs", "900", "--gpus", "256", "--contention-factor", "1.3")
PUBLISHED = "shockwave-published"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = folder and Path(folder) / "shockwave"
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    data: Path = options.data
    policies = options.policies.split(",")
    run("fifo", GENERATED)  # the first start reads everything from the disk
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for case in CASES:
        results[case.name] = {name: run(name, public(case, name, data)) for name in policies}
    results["jobs900_gpus256"] = {name: run(name, GENERATED) for name in policies}
    recorded = {case.name: published(data / "reference_results.csv", case) for case in CASES}
    if options.json:
        for name in policies:
            for workload, rows in results.items():
                print(json.dumps({"workload": workload, "policy": name} | rows[name]))
    else:
        print("\n".join(tables(results, recorded)))


def public(case: Case, policy: str, data: Path) -> tuple[object, ...]:
    """Arguments of a run of a policy on a public trace."""
    tuning = case.tuning if policy == PUBLISHED else ()
    return (
        *("--trace", data / f"{case.name}.trace", "--gpus", case.gpus),
        *("--profile", data / case.profile, "--regimes", data / "gns_regimes.csv"),
        *(word for each in tuning for word in ("--set", f"{each.name}={each.value}")),
    )


def run(policy: str, workload: tuple[object, ...]) -> dict[str, Any]:
    """The figures of a run, and `cpu_s`: the processor time of its whole command."""
    with tempfile.TemporaryDirectory() as warehouse:
        before = os.times()
        ran = subprocess.run(
            [*RUN, "--policy", policy, "--warehouse", warehouse, *map(str, workload)],
            check=True,
            capture_output=True,
        )
        after = os.times()
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return json.loads(ran.stdout) | {"cpu_s": user + system}


def published(path: Path, case: Case) -> dict[str, dict[str, float]]:
    """Figures of the published simulator on a public trace, by policy."""
    figures = ("makespan_s", "mean_jct_s", "wall_s")
    with path.open(newline="") as file:
        return {
            row["policy"]: {name: float(row[name]) for name in figures}
            for row in csv.DictReader(file)
            if (row["trace"], row["source"]) == (case.name, "run")
        }


def tables(
    results: dict[str, dict[str, dict[str, Any]]], recorded: dict[str, dict[str, dict[str, float]]]
) -> list[str]:
    """The tables of the docs: each public trace, costs, ours beside the published."""
    small, large, generated = results.values()
    times = next(iter(recorded.values()))
    costs = [
        [
            f"`{name}`",
            f"{small[name]['cpu_s']:.1f}",
            f"{times[there]['wall_s']:.1f}" if (there := NAMES.get(name, name)) in times else "",
            f"{generated[name]['cpu_s']:.1f}",
        ]
        for name in small
    ]
    heads = ("Policy", "120 jobs, 32 GPUs (s)", "published simulator (s)", "900 jobs, 256 GPUs (s)")
    return [
        _comparison(small),
        _comparison(large),
        markdown(heads, costs),
        _against(results, recorded),
    ]


def _comparison(rows: dict[str, dict[str, Any]]) -> str:
    shown = [
        [
            f"`{name}`",
            *(f"{row[figure]:,.0f}" for figure in ("makespan_s", "mean_jct_s", "jct_p99_s")),
            f"{row['worst_rho']:.2f}",
            f"{row['unfair_fraction']:.1%}",
            f"{row['nash_welfare']:.2f}",
            f"{row['envy_violations']}",
            f"{row['preemptions']:,}",
            f"{row['utilization']:.2f}",
        ]
        for name, row in rows.items()
    ]
    times = ("Makespan (s)", "Mean JCT (s)", "99 % JCT (s)")
    fairness = ("Worst ρ", "Unfair", "Nash welfare", "Envious jobs")
    return markdown(("Policy", *times, *fairness, "Preemptions", "Utilisation"), shown)


def _against(
    results: dict[str, dict[str, dict[str, Any]]], recorded: dict[str, dict[str, dict[str, float]]]
) -> str:
    rows = []
    for trace, there in recorded.items():
        jobs, gpus = trace.removeprefix("jobs").split("_gpus")
        here = results[trace]["shockwave"]
        both = (there["shockwave"], "published simulator", "wall_s"), (here, "this one", "cpu_s")
        for row, system, time in both:
            label = f"{jobs} jobs, {gpus} GPUs" if system != "this one" else ""
            rows.append(
                (
                    *(label, system, f"{row['makespan_s']:,.0f}", f"{row['mean_jct_s']:,.0f}"),
                    f"{row['worst_rho']:.2f}" if "worst_rho" in row else "–",
                    f"{row['unfair_fraction']:.1%}" if "unfair_fraction" in row else "–",
                    f"{row[time]:.1f}",
                )
            )
    times = ("Makespan (s)", "Mean JCT (s)")
    return markdown(("Trace", "System", *times, "Worst ρ", "Unfair", "Time (s)"), rows)


if __name__ == "__main__":
    main()
