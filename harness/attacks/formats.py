"""File formats that Shockwave reads: valid files, mutations, and the commands that read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.attacks.commands import Arguments
from harness.attacks.mutations import BYTES, JSON, LINES, ONE_LINE, REQUEST, TEXT, Mutation
from harness.attacks.requests import SENT

Commands = Callable[[Path, Path], Sequence[Arguments]]
"""Commands, each as its arguments, by the folder of all files and the mutated one."""


@dataclass(frozen=True)
class Format:
    """A format: its files, how they are mutated, and which commands read them.

    Attributes:
        files: Patterns of valid files, in the folder that `make` fills.
        ways: Mutations of their bytes; Parquet files and databases have their rows mutated as well.
        commands: Commands that read them, of which one is drawn.
        may_find: Whether exit code 1 is documented for any of them.
    """

    files: tuple[str, ...]
    ways: tuple[Mutation, ...]
    commands: Commands
    may_find: bool = False


def generated(trace: str, profile: str, regimes: str) -> Arguments:
    options = ("--trace", trace, "--profile", profile, "--regimes", regimes)
    return ("workload", "generate", "out", "--overwrite", *options)


def tables(folder: Path, file: Path) -> Sequence[Arguments]:
    columns = "arrival=at,duration=seconds,gpus=gpus,tenant=user,model=model"
    by_name: dict[str, tuple[str, ...]] = {
        "tiresias.csv": ("--format", "tiresias"),
        "table.csv": ("--format", "table", "--columns", columns),
        "philly.csv": ("--format", "philly"),
        "sacct.txt": ("--format", "sacct"),
        "attempts.json": ("--format", "philly-json"),
    }
    asked = ("--trace", file, *by_name[file.name])
    return [
        ("workload", "generate", "out", "--overwrite", *asked),
        *(
            []
            if file.name == "tiresias.csv"
            else [("workload", "generate", "out", *asked, "--skip-unusable")]
        ),
    ]


def on_types(pools: str, trace: Path | str, throughputs: Path | str) -> Arguments:
    files = ("--trace", trace, "--throughputs", throughputs)
    return ("simulate", "--pools", pools, *files, "--round-seconds", 3600, "--policy", "fifo")


def of_pools(folder: Path, file: Path) -> Sequence[Arguments]:
    asked = file.read_bytes().replace(b"\0", b"").decode(errors="surrogateescape")
    return [on_types(asked, "gavel.trace", "rates.csv")]


def of_warehouse(folder: Path, file: Path) -> Sequence[Arguments]:
    place = ("--warehouse", "w")
    runs = sorted(path.name[4:] for path in Path("w/records").glob("*/run=[a-z]*"))
    run = next((part[4:] for part in file.parts if part.startswith("run=s")), runs[0])
    return [
        ("run", "audit", run, *place),
        ("run", "audit", "--all", *place),
        ("sql", "SELECT * FROM run_summary", *place, "--json"),
        ("sql", "SELECT * FROM records", *place),
        ("sql", "SELECT * FROM campaign_cells", *place),
        ("sql", "--recipe", "worst-jobs", *place),
        ("run", "replay", run, *place),
        ("why", 0, "--run", run, *place),
        ("resume", run, *place),
        ("run", "whatif", run, "--round", 2, "--gpus", 8, *place),
        *(
            [
                ("run", "audit", run, *place),
                ("run", "audit", "--all", *place),
                ("run", "replay", run, *place),
            ]
            * 2
        ),
        ("views", *place),
        ("report", "attacked", *place),
        ("simulate", "--gpus", 4, "--jobs", 1, "--history", run, *place),
    ]


def of_service(folder: Path, file: Path) -> Sequence[Arguments]:
    place = ("--warehouse", "s")
    job = ("--model", "conv-small", "--batch-size", 32, "--epochs", 3)
    (run,) = (path.name[4:] for path in Path("s/records").glob("*/run=service-*"))
    return [
        *(
            ("queue", *place, "--json"),
            ("job", "list", *place),
            ("status", *place),
            ("service", "events", *place),
        ),
        *(
            ("job", "cancel", "x", *place),
            ("job", "hold", 2, *place),
            ("job", "budget", 1, 2, *place),
        ),
        *(("node", "drain", 0, *place), ("job", "logs", 1, *place), ("submit", *job, *place)),
        *(("submit", *job, "--key", "k1", *place), ("submit", *job, "--dry-run", *place)),
        *(
            ("token", "add", "zoe", *place),
            ("token", "list", *place),
            ("token", "rm", "ann", *place),
        ),
        *(
            ("run", "audit", run, *place),
            ("run", "audit", "--all", *place),
            ("run", "replay", run, *place),
        ),
        *(("why", 1, "--run", run, *place), ("sql", "FROM jobs", *place)),
    ]


WAREHOUSE = {
    "headers": ("w/records/*/run=*/header.parquet",),
    "workloads": ("w/records/*/run=*/workload.parquet",),
    "rounds": ("w/records/*/run=*/round=*.parquet",),
    "checksums": ("w/records/*/run=*/SHA256SUMS",),
    "campaigns": ("w/campaigns/*/*.json", "w/campaigns/*/cells.parquet"),
    "marts": ("w/marts/*/*.parquet", "w/marts/current.json"),
    "ledger": ("w/ledger.jsonl",),
    "notes": ("w/.verified.json", "w/.views", "w/analytics.duckdb"),
}

FORMATS: dict[str, Format] = {
    "traces": Format(
        ("jobs.trace",), TEXT, lambda d, f: [generated(str(f), "throughputs.json", "regimes.csv")]
    ),
    "profiles": Format(
        ("throughputs.json",), JSON, lambda d, f: [generated("jobs.trace", str(f), "regimes.csv")]
    ),
    "regimes": Format(
        ("regimes.csv",), TEXT, lambda d, f: [generated("jobs.trace", "throughputs.json", str(f))]
    ),
    "tables": Format(("tiresias.csv", "table.csv", "philly.csv", "sacct.txt"), TEXT, tables),
    "logs": Format(("attempts.json",), JSON, tables),
    "Gavel's traces": Format(
        ("gavel.trace",), TEXT, lambda d, f: [on_types("v100:1x2,k80:1x2", f, "rates.csv")]
    ),
    "throughputs": Format(
        ("rates.csv", "rates.csv.gz"),
        TEXT,
        lambda d, f: [on_types("v100:1x2,k80:1x2", "gavel.trace", f)],
    ),
    "pools": Format(("pools.txt",), ONE_LINE, of_pools),
    "cluster specs": Format(
        ("spec.csv",),
        TEXT,
        lambda d, f: [("simulate", "--cluster", f, "--jobs", 1, "--round-seconds", 3600)],
    ),
    "cluster files": Format(
        ("cluster.toml",),
        TEXT,
        lambda d, f: [
            ("cluster", "check", f),
            (
                "cluster",
                "run",
                "--cluster",
                f,
                "--trace",
                "jobs.trace",
                "--profile",
                "throughputs.json",
            ),
            (
                "cluster",
                "profile",
                "--cluster",
                f,
                "--out",
                "p.json",
                "--models",
                "conv-small",
                "--batch-sizes",
                "32",
            ),
        ],
        may_find=True,
    ),
    "campaign files": Format(
        ("campaign.toml",), TEXT, lambda d, f: [("campaign", "run", f, "--runner", "threads")], True
    ),
    "jobs to add": Format(
        ("job.toml",),
        TEXT,
        lambda d, f: [
            (
                "run",
                "whatif",
                of_warehouse(d, f)[0][1],
                "--round",
                2,
                "--with",
                f,
                "--warehouse",
                "w",
            )
        ],
    ),
    "job files": Format(
        ("declared.toml", "opaque.toml"),
        TEXT,
        lambda d, f: [
            ("submit", f, "--warehouse", "s"),
            ("submit", f, "--warehouse", "s", "--dry-run"),
        ],
    ),
    "files of jobs": Format(
        ("jobs.toml",),
        TEXT,
        lambda d, f: [
            (
                *("simulate", "--gpus", 4, "--format", "jobs", "--trace", f),
                *("--profile", "throughputs.json", "--round-seconds", 3600),
            )
        ],
    ),
    **{
        name: Format(
            patterns,
            LINES if name == "ledger" else JSON if name == "campaigns" else BYTES,
            of_warehouse,
            may_find=True,
        )
        for name, patterns in WAREHOUSE.items()
    },
    "archives": Format(
        ("run.tar",), BYTES, lambda d, f: [("run", "import", f, "--warehouse", "i")]
    ),
    "inboxes": Format(("s/inbox/inbox.sqlite",), BYTES, of_service, may_find=True),
    "service's runs": Format(
        ("s/records/*/run=service-*/*.parquet",), BYTES, of_service, may_find=True
    ),
    "requests": Format(("requests/*.json",), REQUEST, lambda d, f: [(SENT, f)]),
    "arguments": Format((), (), lambda d, f: [], may_find=True),
}
