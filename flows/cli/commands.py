"""Names and summaries of the commands, for `shockwave --help`.

Kept apart from the commands, whose imports take tenths of a second each.
"""

import shutil
from textwrap import fill

ABOUT = "A fair, efficient, auditable scheduler for GPU clusters."
GLOSSARY = "docs/glossary.md"
OPTIONS = {
    "--version": "Print the version and exit.",
    "--help": "Show this message and exit.",
}
PANELS = {
    "Run": {
        "simulate": (
            "runs",
            "Run a trace or a generated workload to its end on a virtual cluster.",
        ),
        "compare": ("runs", "Run one workload under several policies, as one Prefect flow run."),
        "campaign": (
            "campaigns",
            "Run policies × workloads × clusters × seeds × options, as one Prefect flow run.",
        ),
        "run": ("live", "Run a trace in containers on Docker hosts, to the end of its last job."),
        "resume": ("runs", "Go on from the last recorded round of an interrupted run."),
        "generate": (
            "workloads",
            "Write a generated workload, or one read in any format, as a public trace.",
        ),
        "profile": (
            "live",
            "Measure throughputs by training, and write them as a table for the predictor.",
        ),
    },
    "Look": {
        "runs": (
            "catalogue",
            "List runs with their figures, names and tags; filter and sort them.",
        ),
        "show": (
            "catalogue",
            "Show a run: its name, tags and note, its settings, and its figures.",
        ),
        "diff": (
            "catalogue",
            "Compare two runs: settings, outcomes, and the first round that differs.",
        ),
        "campaigns": (
            "campaigns",
            "List campaigns, or show the means over seeds and paired differences of one.",
        ),
        "why": ("history", "Explain why a job runs, waits or was preempted in a round."),
        "sql": ("history", "Query the history of all runs."),
        "report": (
            "reports",
            "Write one self-contained HTML page about runs, and its figures for papers.",
        ),
        "views": (
            "history",
            "Renew analytics.duckdb and the copies of ended runs' marts; say what the views are.",
        ),
        "name": ("catalogue", "Give a run a name, by which commands know it, or show it."),
        "tag": ("catalogue", "Add tags to a run, remove or show them."),
        "note": ("catalogue", "Note a text on a run, or show it."),
        "rm": ("keeping", "Delete a run for good; the ledger enters the removal."),
        "export": (
            "keeping",
            "Audit an ended run and write it, with its name, tags and note, into a file.",
        ),
        "import": ("keeping", "Audit the run in a file and add it to the warehouse."),
    },
    "Live": {
        "up": ("service", "Start a service that takes jobs in, and Prefect's server with its UI."),
        "down": ("service", "Stop the service of a warehouse; its jobs go on at its next start."),
        "status": (
            "service",
            "Say where the service stands: rounds, GPUs, jobs, and what waits in its inbox.",
        ),
        "submit": ("jobs", "Hand a job in; once this returns, nothing loses it."),
        "cancel": ("jobs", "Cancel a job: it gets no more GPUs, and ends with the next round."),
        "hold": ("jobs", "Put a job on hold: it gets no GPUs until it is released."),
        "release": ("jobs", "Release a job that is on hold."),
        "requeue": (
            "jobs",
            "Take a job's GPUs for a round, after which it waits in line; its back-off is over.",
        ),
        "budget": ("jobs", "Give a job another budget in the market."),
        "queue": (
            "jobs",
            "List the active jobs in line: expected starts and ends, fairness, price.",
        ),
        "jobs": ("jobs", "List all jobs of the service."),
        "forecast": (
            "forecast",
            "Say when the active jobs should start and end from now, and with a change.",
        ),
        "logs": (
            "jobs",
            "Print what the containers of a job printed, those that ended and those that run.",
        ),
        "events": ("jobs", "List what happened to jobs and nodes, and what was asked of them."),
        "drain": (
            "nodes",
            "Take a node out of service; jobs on it are preempted, with their checkpoints.",
        ),
        "cordon": ("nodes", "Let no job start on a node; those on it go on."),
        "uncordon": ("nodes", "Bring a drained or cordoned node back into service."),
        "add": ("nodes", "Add a node to the cluster while the service runs."),
        "remove": (
            "nodes",
            "Take a node out of the cluster for good; jobs on it are preempted, with their "
            "checkpoints.",
        ),
        "top": (
            "top",
            "Show the cluster now, its nodes and its queue; on a terminal, until interrupted.",
        ),
        "nodes": ("nodes", "List the nodes, their GPUs, and the jobs that hold them."),
        "login": (
            "service",
            "Have commands ask a service over HTTP; asks for a token, or reads it from stdin.",
        ),
        "logout": (
            "service",
            "Forget the service that was logged in to; commands ask the local warehouse again.",
        ),
        "tenant": ("tenants", "Say what holds for tenants, and list what they use."),
        "token": ("tokens", "Make, list and remove tokens of the API."),
        "cluster": ("live", "Look at a cluster of Docker hosts."),
    },
    "Judge": {
        "whatif": (
            "history",
            "Fork a run at a round, change something, run it forward, and show the difference.",
        ),
        "replay": (
            "history",
            "Predict and solve recorded rounds again; exit 1 if anything comes out otherwise.",
        ),
        "audit": (
            "audit",
            "Verify a run or all: bytes, hash chain, completeness, ledger; exit 1 if it is broken.",
        ),
        "policies": (
            "evaluation",
            "List the policies, where each was published, and what can be set.",
        ),
        "conformance": (
            "evaluation",
            "Run the published policies as published; exit 1 if a figure is off.",
        ),
        "forecast-error": (
            "evaluation",
            "Judge forecasts of the remaining run time on jobs whose truth is known.",
        ),
        "solve": ("evaluation", "Solve recorded window problems and lay them out."),
    },
}
"""By panel of the help: its commands, each with the module that defines it and its summary."""

WITHOUT_RECORDS = frozenset(
    (
        "generate",
        "profile",
        "cluster",
        "policies",
        "conformance",
        "forecast-error",
        "solve",
        "login",
        "logout",
        "tenant",
        "token",
    )
)
"""Commands without a warehouse, or whose own commands have it."""

COMMANDS = {name: command for panel in PANELS.values() for name, command in panel.items()}
"""By command: the module in this package that defines its function, and its summary."""


def overview() -> str:
    """The text that `shockwave --help` prints."""
    width = shutil.get_terminal_size().columns
    wide = max(map(len, (*COMMANDS, *OPTIONS)))
    panels = [
        f"{panel}:\n" + _listed({name: summary for name, (_, summary) in of.items()}, wide, width)
        for panel, of in PANELS.items()
    ]
    parts = [
        "Usage: shockwave [OPTIONS] COMMAND [ARGS]...",
        f"  {ABOUT}",
        "Options:\n" + _listed(OPTIONS, wide, width),
        *panels,
        "  shockwave COMMAND --help lists the options of a command.",
        f"  Words are explained in the glossary: {GLOSSARY}",
    ]
    return "\n\n".join(parts) + "\n"


def _listed(texts: dict[str, str], wide: int, width: int) -> str:
    indent = 4 + wide
    return "\n".join(
        fill(
            text,
            width=max(width, indent + 20),
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
        )
        for name, text in texts.items()
    )
