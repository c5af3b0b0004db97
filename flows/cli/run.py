"""Commands that list, describe, label and move recorded runs."""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Json, RunId, Warehouse
from flows.cli.output import (
    make_jct_columns,
    print_fields,
    print_filled,
    print_result,
    print_rows,
    say,
    subtract,
)
from flows.cli.progress import end_progress, get_progress
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from warehouse.analytics.listing import Selection
    from warehouse.store.labels import Label


IMPORTANT = ("policy", "name", "gpus", "jobs", "makespan_s", "mean_jct_s", "worst_rho")
"""Columns to leave out last if the list does not fit. A choice of layout."""

FEW_RUNS = 50
"""Runs that are listed by default. A choice of layout."""


def print_runs(
    ctx: typer.Context,
    policy: Annotated[str | None, typer.Option(help="Only runs of this policy.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only runs with this tag; can be repeated.")
    ] = None,
    campaign: Annotated[str | None, typer.Option(help="Only runs of this campaign.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Condition on figures, such as 'makespan_s < 30000 AND gpus = 16'."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="Figure to sort by, such as jct_p99_s or 'worst_rho DESC'.", show_default="newest"
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(help="Maximum number of runs to list (0 for all).", min=0, max=1_000_000_000),
    ] = FEW_RUNS,
    of_jobs: Annotated[
        str | None,
        typer.Option(help="Restrict figures to some jobs, such as 'scale_factor = 4'."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="Only runs with the same jobs and GPUs as this run."),
    ] = None,
    by_policy: Annotated[
        bool,
        typer.Option("--by-policy", help="List means over the ended runs of each policy, ± 95 %."),
    ] = False,
    identical: Annotated[
        bool, typer.Option("--identical", help="List identical runs one by one.")
    ] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List runs with their figures, names and tags."""
    from warehouse.analytics.listing import Selection, list_runs
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics
    from warehouse.store.folder import run_folder
    from warehouse.store.labelling import find_run

    alike = None if like is None else find_run(warehouse, like)
    if alike is not None:
        run_folder(warehouse, alike)
    keep_fast(warehouse, get_progress().count("copying figures", "files"))
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
    shown = rows if as_json else _drop_usual(rows)
    if sort:
        important = (*_list_sorted(sort), "name", "gpus", "jobs", "seed")
        print_filled(shown, as_json, important)
    else:
        print_rows(shown, as_json, paged=True, important=IMPORTANT)
    if not rows:
        _say_none("run", warehouse, selected, as_json)
    if sort and len(set(map(_get_conditions, rows))) > 1 and not as_json:
        say("(these runs differ in jobs or GPUs: --like RUN lists comparable ones)", err=True)
    if more and not as_json:
        say(f"(only the first {limit}; --limit 0 lists all)")


def _list_sorted(sort: str) -> tuple[str, ...]:
    """List the columns to leave out last: the policy, then those of the order."""
    return ("policy", *re.findall(r"\w+", sort.lower()))


def _say_none(what: str, warehouse: Path, selected: "Selection", as_json: bool) -> None:
    """Report that no run matches, and policies and tags that no run has."""
    from warehouse.analytics.listing import explain_unknown
    from warehouse.analytics.questions import Analytics

    if not as_json:
        say(f"(no {what} matches)", err=True)
    for line in explain_unknown(Analytics(warehouse), selected):
        say(f"({line})", err=True)


def _get_conditions(row: dict[str, Any]) -> tuple[object, int]:
    """Return the jobs and the number of GPUs, which comparable runs share."""
    return row["workload"] or (row["trace"], row["seed"]), row["gpus"]


def _print_policies(rows: list[dict[str, Any]], selected: "Selection", as_json: bool) -> None:
    """Print the means over the runs of each policy, and warn if these are not comparable."""
    from warehouse.analytics.intervals import FigureRow
    from warehouse.analytics.listing import average_by_policy

    ran = Counter(row["policy"] for row in rows)
    means = [
        FigureRow({"policy": policy, "runs": ran[policy]}, figures)
        for policy, figures in average_by_policy(rows, selected).items()
    ]
    shown = [mean.row() if as_json else mean.shown() for mean in means]
    print_filled(shown, as_json, _list_sorted(selected.sort or ""))
    if as_json:
        return
    times = {policy: Counter[object]() for policy in ran}
    settings = {policy: set[str]() for policy in ran}
    for row in rows:
        times[row["policy"]][_get_conditions(row)] += 1
        settings[row["policy"]].add(row["settings"])
    shares = [
        {of: Fraction(n, found.total()) for of, n in found.items()} for found in times.values()
    ]
    which = "select runs with --campaign, --tag or --where"
    if any(share != shares[0] for share in shares):
        different = "different jobs or GPUs, or in different proportions"
        say(f"(the policies ran {different}: {which})", err=True)
    if mixed := sorted(policy for policy, found in settings.items() if len(found) > 1):
        of = ", ".join(mixed)
        say(f"(runs of {of} differ in parameters, forecasts or other settings: {which})", err=True)


USUAL = {"name": "", "tags": "", "same": 1, "complete": True}
"""Columns that a table leaves out if all runs have this value."""


def _drop_usual(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
        raise InputError(f"run {run!r}", "has no rounds yet", "try again later")
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
    about["pools"] = _format_pools(about["pools"])
    about["packages"] = ", ".join(f"{package['name']} {package['version']}" for package in packages)

    print_fields({name: value for name, value in about.items() if value not in ("", None, [])})


def _format_pools(pools: Iterable[dict[str, Any]]) -> str:
    """Return pools as `--pools` takes them."""
    texts = []
    for pool in pools:
        price = f"@{pool['price']:g}" if pool.get("price") else ""
        nodes, each = pool["gpus"] // pool["gpus_per_node"], pool["gpus_per_node"]
        texts.append(f"{pool['gpu_type'] or 'gpu'}:{nodes}x{each}{price}")
    return ", ".join(texts)


def name(
    run: RunId,
    name: Annotated[str | None, typer.Argument(help="The name.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the name.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Name a run, so that commands accept the name, or show it."""
    from warehouse.store.labelling import name_run, read_label

    new = _check_label("name", name, remove)
    label = read_label(warehouse, run) if new is None else name_run(warehouse, run, new)
    _print_label(run, label, as_json)


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

    _print_label(run, tag_run(warehouse, run, tags or (), remove or ()), as_json)


def note(
    run: RunId,
    text: Annotated[str | None, typer.Argument(help="The note.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the note.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Attach a note to a run, or show it."""
    from warehouse.store.labelling import note_run, read_label

    new = _check_label("text", text, remove)
    label = read_label(warehouse, run) if new is None else note_run(warehouse, run, new)
    _print_label(run, label, as_json)


def _check_label(field: str, text: str | None, remove: bool) -> str | None:
    """Return the new name or note: empty to remove it, None to keep it."""
    if remove and text is not None:
        raise InputError("remove", f"cannot be combined with {text!r}", "give one of the two")
    if text == "":
        raise InputError(
            field, "is empty", "give some text, or delete the current one with --remove"
        )
    return "" if remove else text


def _print_label(run: str, label: "Label", as_json: bool) -> None:
    fields = asdict(label)
    texts = fields | {"tags": " ".join(label.tags)}
    shown = "; ".join(f"{field} {text}" for field, text in texts.items() if text)
    print_result({"run": run} | fields, f"{run}: {shown or 'no name, tags or note'}", as_json)


def compare_runs(
    run: RunId,
    other: Annotated[str, typer.Argument(help="Another run, by its id or name.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Compare two runs: settings, outcomes, and the first round that differs."""
    from flows.explain.difference import compare_runs
    from warehouse.analytics.paired import job_by_job

    found = compare_runs(warehouse, run, other)
    jobs = job_by_job(warehouse, run, [other]).get(other)
    settings = [{"setting": name, "one": a, "other": b} for name, a, b in found.settings]
    figures = [
        {"figure": name, "one": a, "other": b, "difference": subtract(b, a)}
        for name, a, b in found.figures
    ]
    if as_json:
        rounds = {"rounds": found.rounds, "first_round": found.first_round, "fields": found.fields}
        paired = [{"jobs": jobs.pairs} | make_jct_columns(jobs, as_json)] if jobs else []
        print_rows([*settings, *figures, *paired, rounds], as_json)
        return
    say(f"one: {run}; other: {other}")
    say("")
    for row in settings:
        if row["setting"] == "pools":
            row |= {
                of: _format_pools(row[of]) for of in ("one", "other") if isinstance(row[of], list)
            }
    if settings:
        print_rows(settings, as_json)
    else:
        say("same settings and workload")
    say("")
    print_rows(figures, as_json)
    say("")
    if jobs is not None:
        say(
            f"job by job, JCT differs by {jobs.change} s (95 %) over "
            f"{counted(jobs.pairs, 'job')}: {jobs.less} end earlier, {jobs.more} later"
        )
    if found.first_round is None:
        say(f"all {found.rounds[0]} rounds are identical")
    elif found.fields:
        say(f"round {found.first_round} is the first to differ, in {', '.join(found.fields)}")
    else:
        say(f"same until round {found.first_round}, which only one of them has")


def rm(
    run: RunId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Delete a run for good; the ledger records the removal."""
    from warehouse.analytics.catalog import build
    from warehouse.store.folder import run_folder
    from warehouse.store.removal import remove_run

    if not yes:
        if not sys.stdin.isatty():
            raise InputError(f"run {run!r}", "would be deleted for good", "confirm with --yes")
        run_folder(warehouse, run)
        end_progress()  # the bar would be drawn over the question
        if not typer.confirm(f"Delete {run} for good?", err=True):
            return
    remove_run(warehouse, run)
    build(warehouse)  # views without the run
    print_result({"run": run, "removed": True}, f"{run}: deleted", as_json)


def export(
    run: RunId,
    file: Annotated[Path, typer.Argument(help="A new file.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Audit an ended run and write it, with labels, to a file."""
    from warehouse.store.durable import check_writable
    from warehouse.store.exchange import export_run

    check_writable(file)
    exported = export_run(warehouse, run, file)
    size = file.stat().st_size
    row = {"run": run, "file": str(file), "bytes": size, "rounds": exported.rounds}
    text = f"{file}: {run}, {counted(exported.rounds, 'round')}, {size / 1e6:.1f} MB"
    print_result(row, text, as_json)


def import_(
    file: Annotated[Path, typer.Argument(help="File written by shockwave run export.")],
    memory: Annotated[
        int, typer.Option(help="Memory limit of its audit, in MiB.", min=64, max=2**24)
    ] = 2048,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Audit the run in a file and add it to the warehouse."""
    from warehouse.analytics.catalog import build
    from warehouse.analytics.marts import keep_fast
    from warehouse.store.exchange import import_run

    imported = import_run(warehouse, file, memory)
    build(warehouse)
    keep_fast(warehouse, get_progress().count("copying figures", "files"))
    row = {"run": imported.run, "rounds": imported.rounds, "jobs": imported.jobs}
    held = f"{counted(imported.rounds, 'round')}, {counted(imported.jobs, 'job')}"
    print_result(row, f"{imported.run}: {held}, chain and rounds are intact", as_json)
