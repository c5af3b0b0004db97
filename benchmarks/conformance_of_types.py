"""The table of docs/policies.md on GPU types: Gavel's policies here and in its published simulator.

    python -m benchmarks.conformance_of_types [DATA]

Runs what `shockwave policy conformance DATA` runs, in minutes, and prints Markdown. DATA is
by default `gavel` in the folder that the environment variable SHOCKWAVE_DATA names.
"""

import argparse
import os
from pathlib import Path

from flows.evaluation.conformance_of_types import check_conformance_of_types
from harness.markdown import markdown

FIGURES = (("makespan_s", ",.0f"), ("mean_jct_s", ",.0f"), ("worst_rho", ".2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "gavel" if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    rows = [cells(row) for row in check_conformance_of_types(parser.parse_args().data)]
    print(markdown(("Trace", "Policy", "Makespan", "Mean JCT", "Worst ρ", "Within"), rows), end="")


def cells(row: dict[str, object]) -> list[str]:
    """A run as a row of the table."""
    both = [f"{row[name]:{form}} / {row[f'{name}_published']:{form}}" for name, form in FIGURES]
    return [str(row["trace"]), f"`{row['policy']}`", *both, "yes" if row["ok"] else "no"]


if __name__ == "__main__":
    main()
