"""Names and summaries of the commands, for `shockwave --help`.

Kept apart from the commands, whose imports take tenths of a second each.
"""

import shutil
from collections.abc import Sequence
from textwrap import fill

ABOUT = "A fair, efficient, auditable scheduler for GPU clusters."
GLOSSARY = "docs/glossary.md"
OPTIONS = {
    "--version": "Print the version and exit.",
    "--help": "Show this message and exit.",
}
EVERYDAY = {
    "simulate": (
        "simulate:simulate",
        "Run a trace or a generated workload to its end on a virtual cluster.",
    ),
    "compare": (
        "simulate:compare",
        "Run one workload under several policies.",
    ),
    "hindsight": (
        "hindsight:hindsight",
        "Compare what a cluster did, by its log, with what policies would have done.",
    ),
    "resume": ("simulate:resume", "Continue an interrupted run from its last recorded round."),
    "report": ("report:report", "Write one self-contained HTML page about runs, with figures."),
    "why": ("query:explain", "Explain why a job runs, waits or was preempted in a round."),
    "sql": ("query:run_sql", "Query the history of all runs."),
    "views": ("query:rebuild_views", "Rebuild and list the views that SQL can query."),
    "up": ("service:start", "Start a service that accepts jobs, and Prefect's server with its UI."),
    "down": ("service:stop", "Stop a warehouse's service; its jobs continue when it starts again."),
    "status": (
        "service:print_status",
        "Show the service's rounds, GPUs, jobs and pending requests.",
    ),
    "submit": ("submit:submit", "Submit a job durably: once accepted, no crash loses it."),
    "queue": (
        "job:print_queue",
        "List active jobs in order, with expected starts, ends and price.",
    ),
    "shell": ("shell:open_shell", "Open a shell in a running job, or wait until it runs."),
    "login": ("service:login", "Send commands to a remote service; reads a token from stdin."),
    "whoami": ("service:whoami", "Print the caller's name, role and tenant, and the service."),
    "logout": ("service:logout", "Forget the remote service and use the local warehouse again."),
}
"""Commands at the top: `module:function` in this package, and the summary."""

GROUPS = {
    "run": "Recorded runs: list, label, compare, verify, move and delete them.",
    "campaign": "Many runs from one file: policies × workloads × clusters × seeds.",
    "workload": "Traces and generated workloads.",
    "policy": "Scheduling policies.",
    "cluster": "Docker hosts: check them, measure throughputs, run a trace on them.",
    "slurm": "A Slurm whose users' jobs Shockwave starts.",
    "job": "Jobs of a service.",
    "node": "Nodes of a service.",
    "service": "What happens in a service, and what will.",
    "deployments": "Schedules of what Prefect runs: campaigns, reports, audits, maintenance.",
    "tenant": "Budgets and quotas of a service's tenants.",
    "token": "Tokens of a service's API.",
}
"""Summaries of the groups."""

GROUPED = {
    "run list": ("run:print_runs", "List runs with their figures, names and tags."),
    "run show": ("run:show", "Show a run's name, tags, note, settings and figures."),
    "run diff": (
        "run:compare_runs",
        "Compare two runs: settings, outcomes, and the first round that differs.",
    ),
    "run name": ("run:name", "Name a run, so that commands accept the name, or show it."),
    "run tag": ("run:tag", "Add, remove or show a run's tags."),
    "run note": ("run:note", "Attach a note to a run, or show it."),
    "run rm": ("run:rm", "Delete a run for good; the ledger records the removal."),
    "run export": ("run:export", "Audit an ended run and write it, with labels, to a file."),
    "run import": ("run:import_", "Audit the run in a file and add it to the warehouse."),
    "run audit": (
        "run_checks:audit",
        "Verify a run or all runs: bytes, hash chain, completeness, ledger.",
    ),
    "run replay": ("run_checks:replay", "Repeat the predictions and plans of recorded rounds."),
    "run whatif": ("run_checks:whatif", "Fork a run at a round, change something, and compare."),
    "campaign run": ("campaign:run", "Run all cells of a campaign."),
    "campaign show": ("campaign:show", "List campaigns, or show the results of one."),
    "workload generate": ("workload:generate", "Write a workload, generated or read, as a trace."),
    "workload show": ("workload:show", "Show what a cluster's log says of its jobs."),
    "workload fetch": (
        "workload:fetch",
        "Print where a public set of traces is, and convert what was downloaded.",
    ),
    "policy list": (
        "policy:print_policies",
        "List the policies, their sources and parameters.",
    ),
    "cluster check": ("cluster:check", "Check that the machines of a cluster file can run jobs."),
    "cluster profile": ("cluster:profile", "Measure throughputs by training, for the predictor."),
    "cluster pull": ("cluster:pull", "Pull images on the hosts of a cluster file."),
    "cluster run": ("cluster:run", "Run a trace in containers until its last job ends."),
    "slurm check": (
        "slurm:check",
        "Check that nothing but Shockwave starts jobs of a Slurm partition.",
    ),
    "slurm advise": (
        "slurm:advise",
        "Print the order in which a policy would start a partition's waiting jobs.",
    ),
    "slurm release-all": (
        "slurm:release_all",
        "Hand the queue back: Slurm itself starts all waiting jobs of a partition.",
    ),
    "job list": ("job:print_jobs", "List the jobs of the service."),
    "job wait": ("job:wait", "Wait until jobs have ended; exit code 1 if one did not finish."),
    "job cancel": ("job:cancel", "Cancel jobs at the end of this round."),
    "job hold": ("job:hold", "Withhold GPUs from jobs until they are released."),
    "job release": ("job:release", "Release held jobs."),
    "job requeue": ("job:requeue", "Preempt jobs for a round and reset their back-off."),
    "job budget": ("job:set_budget", "Change a job's budget in the market."),
    "job logs": ("job:print_logs", "Print the output of a job's containers."),
    "node list": ("node:print_nodes", "List the nodes, their GPUs, and the jobs on them."),
    "node add": ("node:add", "Add a node while the service runs."),
    "node remove": ("node:remove", "Remove a node for good; its jobs are preempted."),
    "node drain": ("node:drain", "Take a node out of service; its jobs are preempted."),
    "node cordon": ("node:cordon", "Let no new job start on a node; its jobs continue."),
    "node image": ("node:image", "Give later jobs on a node its new image of the cluster file."),
    "node uncordon": ("node:uncordon", "Return a drained or cordoned node to service."),
    "node maintain": ("node:maintain", "Set nodes aside for maintenance for a time."),
    "node reserve": ("node:reserve", "Reserve nodes for a tenant for a time."),
    "node windows": (
        "node:print_windows",
        "List windows, in seconds of the run's clock from the last round, and by date.",
    ),
    "node reopen": (
        "node:reopen",
        "End windows of nodes; those that have not begun do not begin.",
    ),
    "service events": (
        "service:print_events",
        "List events of jobs and nodes, and users' requests.",
    ),
    "service forecast": (
        "service:forecast",
        "Forecast starts and ends of the active jobs, with and without a change.",
    ),
    "deployments list": (
        "deployments:print_deployments",
        "List deployments with their schedules and next starts.",
    ),
    "deployments schedule": (
        "deployments:schedule",
        "Schedule flow runs of a deployment, by cron, interval or RRule.",
    ),
    "deployments pause": (
        "deployments:pause",
        "Pause a deployment's schedules; those of round pause the service.",
    ),
    "deployments resume": ("deployments:resume", "Resume a deployment's schedules."),
    "deployments unschedule": ("deployments:unschedule", "Remove a deployment's schedules."),
    "tenant list": ("tenant:print_tenants", "List tenants with budgets, use and quotas."),
    "tenant set": ("tenant:set_tenant", "Change a tenant's budget, quota or images."),
    "token add": ("token:add", "Create a token and print it once."),
    "token list": ("token:print_tokens", "List tokens without their secrets."),
    "token rm": ("token:rm", "Revoke a token."),
}
"""Commands of the groups, as in `EVERYDAY`."""

COMMANDS = EVERYDAY | GROUPED
"""All commands."""

WITHOUT_RECORDS = frozenset(
    (
        *(
            "workload generate",
            "workload show",
            "workload fetch",
            "cluster profile",
            "cluster check",
            "cluster pull",
            "policy list",
            "slurm advise",
            "slurm check",
        ),
        *("login", "logout"),
    )
)
"""Commands without `--warehouse`."""


def find_command(words: Sequence[str]) -> str:
    """Find the command that a line begins with; empty if there is none."""
    names = (" ".join(words[:length]) for length in (2, 1))
    return next((name for name in names if name in COMMANDS), "")


def format_overview() -> str:
    """Format the text that `shockwave --help` prints."""
    width = shutil.get_terminal_size().columns
    wide = max(map(len, (*EVERYDAY, *GROUPS, *OPTIONS)))
    everyday = {name: summary for name, (_, summary) in EVERYDAY.items()}
    parts = [
        "Usage: shockwave [OPTIONS] COMMAND [ARGS]...",
        f"  {ABOUT}",
        "Options:\n" + _listed(OPTIONS, wide, width),
        "Commands:\n" + _listed(everyday, wide, width),
        "Groups of commands:\n" + _listed(GROUPS, wide, width),
        "  shockwave COMMAND --help lists options, shockwave GROUP --help lists commands.",
        f"  Terms are explained in the glossary: {GLOSSARY}",
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
