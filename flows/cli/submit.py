"""The command `submit`, whose options are the fields of a job's file."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.connection import complete_jobs, connect
from flows.cli.job import Key, print_accepted
from flows.cli.options import Json, Warehouse, after_dashes, expand
from flows.cli.output import print_rows, say
from flows.runs.job_fields import FieldKind, JobField, list_job_fields, parse_variables
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.runs.job_file import JobFile

FIELDS = {field.option: field for field in list_job_fields() if field.name != "command"}
"""Fields by option; the command follows `--`."""

TYPES: dict[FieldKind, Any] = {
    FieldKind.INTEGER: int | None,
    FieldKind.NUMBER: float | None,
    FieldKind.FLAG: bool,
    FieldKind.WORDS: list[str] | None,
    FieldKind.VARIABLES: list[str] | None,
}
"""Types of options; all other fields are texts. `JobFile` checks choices and bounds."""


def _make_parameter(name: str, field: JobField) -> Parameter:
    flag = [f"--{name.replace('_', '-')}"] if field.kind is FieldKind.FLAG else []
    usual = field.default if isinstance(field.default, int | float | str) else ""
    option = typer.Option(
        *flag,
        help=field.help,
        show_default=(str(usual) if isinstance(usual, str) else f"{usual:g}") if usual else False,
        metavar="|".join(field.choices) or None,
        autocompletion=complete_jobs if name == "after" else None,
    )
    annotated: Any = Annotated  # mypy requires a static type as argument
    kind = annotated[TYPES.get(field.kind, str | None), option]
    default = False if field.kind is FieldKind.FLAG else None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _collect_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that options gave."""
    given = {
        FIELDS[option].name: value
        for option, value in values.items()
        if not (value is None or value is False or value == [])
    }
    if "environment" in given:
        given["environment"] = parse_variables("env", given["environment"])
    return given


PARAMETERS = [_make_parameter(name, field) for name, field in FIELDS.items()]


@expand(fields=(PARAMETERS, _collect_fields))
def submit(
    fields: dict[str, Any],
    job: Annotated[
        list[str] | None,
        typer.Argument(help="The job's file (TOML), or after -- its command.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Forecast its start and end; submit nothing.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a job's file, and exit.")
    ] = False,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Submit a job durably: once accepted, no crash loses it."""
    from flows.api.code import store_fields
    from flows.api.submission import parse_job, read_job_fields
    from flows.runs.job_file import JobFile

    if schema:
        typer.echo(json.dumps(JobFile.model_json_schema(), indent=2))
        return
    words, command = job or [], list(after_dashes.get())
    if words != command and not (len(words) == 1 and words[0].endswith(".toml")):
        problem = f"{words[0][:80]!r} is not a job's file, which ends in .toml"
        raise InputError("job", problem, "write -- before a command: … -- python train.py")
    file, options = words[0] if words and not command else None, {*fields}
    with _name_options(fields, file), connect(warehouse) as service:
        if command:
            fields["command"] = command
        elif file is not None:
            fields = read_job_fields(Path(file), fields)
        base = Path(file).parent if file and "code" not in options else Path()
        if dry_run:
            fields = {name: value for name, value in fields.items() if name != "code"}
            expected = asdict(service.forecast_job(fields))
            _print_expected(expected, parse_job(Path("job"), fields), as_json)
            return
        accepted = service.submit(store_fields(fields, service, base), key=key)
    print_accepted(accepted, str(fields.get("name", "")), as_json)


@contextmanager
def _name_options(given: Collection[str], file: str | None) -> Iterator[None]:
    """Name the option, in errors about a field of the job, unless the job's file gave the field.

    `given` are the fields that options gave; without a file, these are all.
    """
    try:
        yield
    except InputError as error:
        place = error.place.removeprefix(f"{file or 'job'}: ")
        found = re.fullmatch(r"(\w+)([.\[].*)?", place)
        if found is None or (file is not None and found[1] not in given):
            raise
        place = next((o for o, field in FIELDS.items() if field.name == found[1]), found[1])
        raise type(error)(place, error.problem, error.remedy) from None


def _print_expected(row: dict[str, Any], job: "JobFile", as_json: bool) -> None:
    from flows.api.submission import describe_launch

    if as_json:
        launch = job.model_dump(mode="json", exclude_unset=True)
        expected = {field: row[field] for field in row if field != "job_id"}
        print_rows([expected | {"launch": launch}], as_json)
        return
    say(f"it would be launched {describe_launch(job)}")
    if row["starts_in_s"] is None:
        waits = f" while it waits for {row['waits_for']}" * bool(row["waits_for"])
        say(f"it can run here; its start cannot be predicted{waits}")
        return
    for verb, what in (("start", "starts"), ("end", "ends")):
        low, high = row[f"{what}_low_s"], row[f"{what}_high_s"]
        say(f"it would {verb} in {row[f'{what}_in_s']:,.0f} s (80 %: {low:,.0f} to {high:,.0f} s)")
    if row["rho"] is not None:
        low, high = row["rho_low"], row["rho_high"]
        say(
            f"that is {row['rho']:.2f} times what an evenly shared cluster would take "
            f"(ρ, 80 %: {low:.2f} to {high:.2f})"
        )
    if row["in_time"]:
        say(f"within its deadline of {row['deadline_in_s']:,.0f} s: {row['in_time']}")
    if size := row["size"]:
        gpus = f"{size['gpus']} GPU{'s' * (size['gpus'] > 1)}"
        kind = f" of type {size['gpu_type']}" * bool(size["gpu_type"])
        say(
            f"cheapest size that meets the deadline: {gpus}{kind}, "
            f"{size['gpu_hours']:,.1f} GPU-hours, ends in {size['ends_in_s']:,.0f} s"
        )
    elif row["in_time"] not in ("", "yes") and (job.min_gpus or job.max_gpus):
        say("no number of GPUs that was tried is sure to meet its deadline")
