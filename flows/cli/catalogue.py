"""Commands on the list of runs: `runs`, `show`, `name`, `tag`, `note`, `diff`."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Json, RunId, Warehouse
from flows.cli.output import jct_row, less, print_fields, print_listed, print_rows, say
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from warehouse.analytics.listing import Selection

FEW_RUNS = 50
"""Runs that are listed by default. A choice of layout."""


def print_runs(
    ctx: typer.Context,
    policy: Annotated[str | None, typer.Option(help="Runs of this policy only.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Runs with this tag only; can be repeated.")
    ] = None,
    campaign: Annotated[str | None, typer.Option(help="Runs of this campaign only.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="A condition over figures, such as 'makespan_s < 30000 AND gpus = 16'."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="A figure, such as jct_p99_s or 'worst_ftf DESC'.", show_default="newest"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="At most so many runs; 0: all.", min=0, max=1_000_000_000)
    ] = FEW_RUNS,
    of_jobs: Annotated[
        str | None,
        typer.Option(help="Figures of some jobs of each run only, such as 'scale_factor = 4'."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="A run: those of the same jobs on as many GPUs only, to be compared."),
    ] = None,
    by_policy: Annotated[
        bool, typer.Option("--by-policy", help="Means over the ended runs of each policy, ± 95 %.")
    ] = False,
    identical: Annotated[
        bool, typer.Option("--identical", help="List each of several identical runs.")
    ] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List runs with their figures, names and tags."""
    from flows.cli.progress import progress
    from warehouse.analytics.listing import Selection, list_runs
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics
    from warehouse.store.folder import run_folder
    from warehouse.store.labelling import find_run

    alike = None if like is None else find_run(warehouse, like)
    if alike is not None:
        run_folder(warehouse, alike)
    keep_fast(warehouse, progress().counted("copying figures", "files"))
    most = limit + 1 if limit else None
    tags = tuple(tag or ())
    selected = Selection(policy, tags, where, sort, most, of_jobs, alike, identical, campaign)
    if by_policy:
        averaged = replace(selected, sort=None, limit=None, means=True)
        rows = list_runs(Analytics(warehouse), averaged)
        _print_policies(rows, selected, as_json)
        if not rows:
            _say_none("run that has ended", warehouse, selected, as_json)
        return
    rows = list_runs(Analytics(warehouse), selected)
    more = bool(limit) and len(rows) > limit
    rows = rows[: limit or None]
    shown = rows if as_json else _without_usual(rows)
    if sort:
        asked = (*_ordered_by(sort), "name", "gpus", "jobs", "seed")
        print_listed(shown, as_json, asked)
    else:
        print_rows(shown, as_json, paged=True)
    if not rows:
        _say_none("run", warehouse, selected, as_json)
    if sort and len(set(map(_circumstances, rows))) > 1 and not as_json:
        say("(of different jobs or GPUs: --like RUN lists those to be compared)", err=True)
    if more and not as_json:
        say(f"(the first {limit} only; --limit 0 lists all)")


def _ordered_by(sort: str) -> tuple[str, ...]:
    """Columns to show first: the policy, then those that an order names."""
    return ("policy", *re.findall(r"\w+", sort.lower()))


def _say_none(what: str, warehouse: Path, selected: "Selection", as_json: bool) -> None:
    """Say that no run was selected, and which policy or tag no run has, maybe misspelt."""
    from warehouse.analytics.listing import unknown
    from warehouse.analytics.questions import Analytics

    if not as_json:
        say(f"(no {what} is like that)", err=True)
    for line in unknown(Analytics(warehouse), selected):
        say(f"({line})", err=True)


def _circumstances(row: dict[str, Any]) -> tuple[object, int]:
    """The jobs and the number of GPUs, which comparable runs share."""
    return row["workload"] or (row["trace"], row["seed"]), row["gpus"]


def _print_policies(rows: list[dict[str, Any]], selected: "Selection", as_json: bool) -> None:
    """Print the means over the runs of each policy, and warn if these are not comparable."""
    from warehouse.analytics.intervals import as_columns
    from warehouse.analytics.listing import by_policy

    ran = Counter(row["policy"] for row in rows)
    shown = list[dict[str, Any]]()
    for policy, figures in by_policy(rows, selected).items():
        about = {"policy": policy, "runs": ran[policy]}
        for name, mean in figures.items():
            text = "" if mean is None else str(mean)
            about |= as_columns(name, mean) if as_json else {name: text}
        shown.append(about)
    print_listed(shown, as_json, _ordered_by(selected.sort or ""))
    if as_json:
        return
    times = {policy: Counter[object]() for policy in ran}
    settings = {policy: set[str]() for policy in ran}
    for row in rows:
        times[row["policy"]][_circumstances(row)] += 1
        settings[row["policy"]].add(row["settings"])
    shares = [
        {of: Fraction(n, found.total()) for of, n in found.items()} for found in times.values()
    ]
    which = "--campaign, --tag or --where says which runs count"
    if any(share != shares[0] for share in shares):
        say(
            f"(the policies ran different jobs or GPUs, or in other proportions: {which})", err=True
        )
    if mixed := sorted(policy for policy, found in settings.items() if len(found) > 1):
        of = ", ".join(mixed)
        say(f"(of different parameters, forecasts or other settings: {of}; {which})", err=True)


USUAL = {"name": "", "tags": "", "same": 1, "complete": True}
"""Columns of the list that are left out of a table where all runs have this value."""


def _without_usual(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = ["workload"] + [
        name for name, usual in USUAL.items() if all(row.get(name, usual) == usual for row in rows)
    ]
    return [{name: row[name] for name in row if name not in left} for row in rows]


def show(run: RunId, warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Show a run's name, tags, note, settings and figures."""
    from warehouse.analytics.questions import Analytics
    from warehouse.store.folder import run_folder
    from warehouse.store.labelling import read_label

    folder, label = run_folder(warehouse, run), read_label(warehouse, run)
    if next(folder.glob("round=*.parquet"), None) is None:
        raise InputError(f"run {run!r}", "has no rounds yet", "ask again later")
    about: dict[str, Any] = {}
    for view in ("runs", "run_summary"):
        columns, (row,) = Analytics(warehouse).query(f"FROM {view}", [run])
        about |= dict(zip(columns, row, strict=True))
    about.pop("run")
    packages = about.pop("packages") or ()
    about = {"run": run, **asdict(label), **about, "folder": str(folder), "packages": packages}
    if as_json:
        print_rows([about], as_json)
        return
    about["tags"] = " ".join(label.tags)
    about["pools"] = _pools(about["pools"])
    about["packages"] = ", ".join(f"{package['name']} {package['version']}" for package in packages)

    print_fields({name: value for name, value in about.items() if value not in ("", None, [])})


def _pools(pools: Iterable[dict[str, Any]]) -> str:
    return ", ".join(map(_pool, pools))


def _pool(pool: dict[str, Any]) -> str:
    """A pool as `--pools` takes it; a record has no price where there is none."""
    price = f"@{pool['price']:g}" if pool.get("price") else ""
    nodes, each = pool["gpus"] // pool["gpus_per_node"], pool["gpus_per_node"]
    return f"{pool['gpu_type'] or 'gpu'}:{nodes}x{each}{price}"


def name(
    run: RunId,
    name: Annotated[str | None, typer.Argument(help="The name.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Name a run, so that commands accept the name, or show it."""
    from warehouse.store.labelling import name_run, read_label

    new = _changed("name", name, remove)
    label = read_label(warehouse, run) if new is None else name_run(warehouse, run, new)
    _print_label(run, asdict(label), as_json)


def tag(
    run: RunId,
    tags: Annotated[list[str] | None, typer.Argument(help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="A tag to remove; can be repeated.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Add, remove or show a run's tags."""
    from warehouse.store.labelling import tag_run

    _print_label(run, asdict(tag_run(warehouse, run, tags or (), remove or ())), as_json)


def note(
    run: RunId,
    text: Annotated[str | None, typer.Argument(help="The note.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the note away.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Attach a note to a run, or show it."""
    from warehouse.store.labelling import note_run, read_label

    new = _changed("text", text, remove)
    label = read_label(warehouse, run) if new is None else note_run(warehouse, run, new)
    _print_label(run, asdict(label), as_json)


def _changed(field: str, text: str | None, remove: bool) -> str | None:
    """The new name or note: empty to remove it, None to leave it."""
    if remove and text is not None:
        raise InputError("remove", f"and {text!r} were given", "give one of them")
    if text == "":
        raise InputError(field, "is empty", "take away what is there with --remove")
    return "" if remove else text


def _print_label(run: str, label: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_rows([{"run": run} | label], as_json)
        return
    label["tags"] = " ".join(label["tags"])
    fields = "; ".join(f"{field} {text}" for field, text in label.items() if text)
    say(f"{run}: {fields or 'no name, tags or note'}")


def diff(
    run: RunId,
    other: Annotated[str, typer.Argument(help="Another run, by its id or name.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Compare two runs: settings, outcomes, and the first round that differs."""
    from flows.explain.difference import difference
    from warehouse.analytics.paired import job_by_job

    found, jobs = difference(warehouse, run, other), job_by_job(warehouse, run, [other]).get(other)
    settings = [{"setting": name, "one": a, "other": b} for name, a, b in found.settings]
    figures = [
        {"figure": name, "one": a, "other": b, "difference": less(b, a)}
        for name, a, b in found.figures
    ]
    if as_json:
        rounds = {"rounds": found.rounds, "first_round": found.first_round, "fields": found.fields}
        paired = [{"jobs": jobs.pairs} | jct_row(jobs, as_json)] if jobs else []
        print_rows([*settings, *figures, *paired, rounds], as_json)
        return
    say(f"one: {run}; other: {other}")
    say("")
    for row in settings:
        if row["setting"] == "pools":
            row |= {of: _pools(row[of]) for of in ("one", "other") if isinstance(row[of], list)}
    if settings:
        print_rows(settings, as_json)
    else:
        say("the same settings and workload")
    say("")
    print_rows(figures, as_json)
    say("")
    if jobs is not None:
        say(
            f"job by job, JCT differs by {jobs.change} s (95 %) over "
            f"{counted(jobs.pairs, 'job')}: {jobs.less} end sooner, {jobs.more} later"
        )
    if found.first_round is None:
        say(f"all {found.rounds[0]} rounds are the same")
    elif found.fields:
        say(f"round {found.first_round} is the first that differs: in {', '.join(found.fields)}")
    else:
        say(f"the same up to round {found.first_round}, which only one of them has")
