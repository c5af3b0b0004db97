"""The tables of docs/policies.md: policies here and in the published simulators.

    python -m benchmarks.conformance [DATA]

Runs the policies of the traces in DATA: for a minute those of the Shockwave paper, from a folder
that `shockwave workload fetch shockwave` makes; or for about an hour Gavel's on several GPU types,
whose folder has `throughputs.csv.gz`; or for half an hour Pollux and those that it is compared
with, whose folder has measured applications. Prints progress, then Markdown, and exits with 1 if a
figure is not within its tolerance. DATA is by default `gavel` in the folder that the environment
variable SHOCKWAVE_DATA names.
"""

import argparse
import os
import sys
from pathlib import Path

from harness.conformance import check_conformance
from harness.conformance_of_applications import APPLICATIONS, check_conformance_of_applications
from harness.conformance_of_types import THROUGHPUTS, check_conformance_of_types
from harness.markdown import markdown

COLUMNS = {
    "makespan_s": ("Makespan", ",.0f"),
    "jct_p99_s": ("p99 JCT", ",.0f"),
    "mean_jct_s": ("Mean JCT", ",.0f"),
    "worst_ftf": ("Worst ρ", ".2f"),
    "worst_rho": ("Worst ρ", ".2f"),
    "unfair_fraction": ("Unfair", ".1%"),
}
"""Title and format of each figure."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "gavel" if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    data = parser.parse_args().data
    check = check_conformance_of_types if (data / THROUGHPUTS).exists() else check_conformance
    if (data / APPLICATIONS).exists():
        check = check_conformance_of_applications
    rows = []
    if check is check_conformance_of_types:
        print("39 runs of policies on traces take about an hour", file=sys.stderr, flush=True)
    for row in check(data):
        rows.append(row)
        print(f"{len(rows):2}: {row['policy']} on {row['trace']}", file=sys.stderr, flush=True)
    names = [name for name in rows[0] if name in COLUMNS]
    titles = ["Trace", "Policy", *(COLUMNS[name][0] for name in names), "Within"]
    print(markdown(titles, [cells(row, names) for row in rows]), end="")
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


def cells(row: dict[str, object], names: list[str]) -> list[str]:
    """A run as a row of the table."""
    both = [
        f"{row[name]:{COLUMNS[name][1]}} / {row[f'{name}_published']:{COLUMNS[name][1]}}"
        for name in names
    ]
    return [str(row["trace"]), f"`{row['policy']}`", *both, "yes" if row["ok"] else "no"]


if __name__ == "__main__":
    main()
