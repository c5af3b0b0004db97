"""Names and summaries of the commands, for `shockwave --help`.

Kept apart from the commands, whose imports take tenths of a second each.
"""

import shutil
from textwrap import fill

ABOUT = "A fair, efficient, auditable scheduler for GPU clusters."
OPTIONS = {
    "--version": "Print the version and exit.",
    "--help": "Show this message and exit.",
}
COMMANDS = {
    "simulate": ("runs", "Run a trace or a generated workload to its end on a virtual cluster."),
    "compare": ("runs", "Run one workload under several policies, as one Prefect flow run."),
    "campaign": (
        "campaigns",
        "Run policies × workloads × clusters × seeds × options, as one Prefect flow run.",
    ),
    "generate": (
        "workloads",
        "Write a generated workload, or one read in any format, as a public trace.",
    ),
    "run": ("live", "Run a trace in containers on Docker hosts, to the end of its last job."),
    "profile": (
        "live",
        "Measure throughputs by training, and write them as the table that the predictor reads.",
    ),
    "resume": ("runs", "Go on from the last recorded round of an interrupted run."),
    "replay": (
        "history",
        "Predict and solve recorded rounds again; exit 1 if anything comes out otherwise.",
    ),
    "audit": (
        "audit",
        "Verify a run or all: bytes, hash chain, completeness, ledger; exit 1 if it is broken.",
    ),
    "why": ("history", "Explain why a job runs, waits or was preempted in a round."),
    "whatif": (
        "history",
        "Fork a run at a round, change something, run it forward, and show the difference.",
    ),
    "report": (
        "reports",
        "Write one self-contained HTML page about runs, and its figures for papers.",
    ),
    "policies": (
        "judging",
        "List the policies, where each was published, and what can be set.",
    ),
    "conformance": (
        "judging",
        "Run the published policies as published; exit 1 if a figure is off.",
    ),
    "forecast-error": (
        "judging",
        "Judge forecasts of the remaining run time on jobs whose truth is known.",
    ),
    "solve": ("judging", "Solve recorded window problems and lay them out."),
    "sql": ("history", "Query the history of all runs."),
    "views": (
        "history",
        "Renew analytics.duckdb and the copies of ended runs' marts; say what the views are.",
    ),
    "up": (
        "service",
        "Start Prefect's server and UI, and serve the flows that can be started from it.",
    ),
    "cluster": ("live", "Look at a cluster of Docker hosts."),
}
"""By command: the module in this package that defines its function, and its summary."""


def overview() -> str:
    """The text that `shockwave --help` prints."""
    commands = {name: summary for name, (_, summary) in COMMANDS.items()}
    width = shutil.get_terminal_size().columns
    parts = [
        "Usage: shockwave [OPTIONS] COMMAND [ARGS]...",
        f"  {ABOUT}",
        "Options:\n" + _listed(OPTIONS, width),
        "Commands:\n" + _listed(commands, width),
        "  shockwave COMMAND --help lists the options of a command.\n"
        "  docs/glossary.md says what the words mean: ftf, gang, regime and others.",
    ]
    return "\n\n".join(parts) + "\n"


def _listed(texts: dict[str, str], width: int) -> str:
    indent = 4 + max(map(len, texts))
    return "\n".join(
        fill(
            text,
            width=max(width, indent + 20),
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
        )
        for name, text in texts.items()
    )
