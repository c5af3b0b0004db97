"""Lines of tables by the roles of their columns, and the formats that are a table of jobs."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from predictor.errors import InputError
from warehouse.workloads.logs.log import (
    NOT_ASKED,
    SEEN_BEFORE,
    SKIP,
    UNREADABLE,
    JobLine,
    ReadOptions,
    RowFilter,
    TableJob,
    UnusableError,
)
from warehouse.workloads.moments import Moments, clean
from warehouse.workloads.tabular import OpenTable, open_table, shorten

Names = Mapping[str, Sequence[str]]
"""Columns by role; of several the first that a table has is read."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a format.

    Attributes:
        names: Columns by role.
        needed: Roles without which a table is refused; of each group one is enough.
        units: Unit of numeric times in seconds, by role.
        header: Columns of files that are published without a header.
        free_text: Role whose field may hold the delimiter.
        members: Stems of file names, to choose among the files of an archive.
        unset: Text of times that have not come, besides the usual words.
        of_lines: See `open_table`.
    """

    names: Names
    needed: Sequence[Sequence[str]]
    units: Mapping[str, float]
    header: Sequence[str] = ()
    free_text: str = ""
    members: Sequence[str] = ()
    unset: str = ""
    of_lines: bool = False


def read_lines(
    path: Path,
    columns: Columns,
    options: ReadOptions,
    left_out: Counter[str],
    *,
    several: bool = False,
) -> Iterator[JobLine]:
    """Yield the lines of a table that `options` selects; all if a job has `several` lines.

    The header may be repeated, as in files that were put together.

    Raises:
        InputError: The file cannot be read, a column is missing, or a line does not fit the header.
    """
    known = [name for names in columns.names.values() for name in names]
    text = columns.names.get(columns.free_text, ("",))[0]
    with open_table(
        path,
        known,
        header=options.header or columns.header,
        free_text=text.casefold(),
        members=columns.members,
        of_lines=columns.of_lines,
    ) as table:
        found = _locate(path, table, columns)
        selected = _locate_selection(path, table, options.only)
        selection, moments = RowFilter.of(options.only), Moments.of(options.zone)
        roles = {role: name for role, (name, _) in found.items()}
        positions = [(role, at) for role, (_, at) in found.items()]
        header = [*table.columns]
        for number, fields in table.lines:
            place = f"{path}:{number}"
            if fields is None:
                if not options.skip_unreadable:
                    problem = f"does not have the {len(table.columns)} fields of the header"
                    raise InputError(place, problem, f"correct the line, or {SKIP}")
                left_out[UNREADABLE] += 1
                continue
            if fields == header:
                continue
            asked = selection.has({name: fields[at] for name, at in selected.items()})
            if not asked and not several:
                left_out[NOT_ASKED] += 1
            else:
                values = {role: clean(fields[at]) for role, at in positions}
                for role in ("start", "end", "eligible") if columns.unset else ():
                    if values.get(role) == columns.unset:
                        values[role] = ""
                yield JobLine(place, values, roles, moments, columns.units, asked)


def _locate(path: Path, table: OpenTable, columns: Columns) -> dict[str, tuple[str, int]]:
    """Return name and position of the column of each role that the table has."""
    there = {name.casefold(): name for name in table.columns}
    found = {}
    for role, names in columns.names.items():
        name = next((there[n.casefold()] for n in names if n.casefold() in there), None)
        if name is not None:
            found[role] = name, table.columns[name]
    for group in columns.needed:
        if not found.keys() & {*group}:
            names = [name for role in group for name in columns.names.get(role, ())]
            raise _missing(path, " or ".join(map(repr, names[:3])), table)
    return found


def _locate_selection(path: Path, table: OpenTable, only: Mapping[str, str]) -> dict[str, int]:
    there = {name.casefold(): at for name, at in table.columns.items()}
    for column in only:
        if column.casefold() not in there:
            raise _missing(path, repr(column), table)
    return {column.casefold(): there[column.casefold()] for column in only}


def _missing(path: Path, name: str, table: OpenTable) -> InputError:
    remedy = f"the header has {shorten(table.columns)}"
    return InputError(f"{path}:1", f"missing column {name}", remedy)


def take_usable(
    make: Callable[[], TableJob], options: ReadOptions, left_out: Counter[str]
) -> Iterator[TableJob]:
    """Yield a job, or count the reason why there is none.

    Raises:
        InputError: A field is unreadable, and such lines are not to be skipped.
    """
    try:
        yield make()
    except UnusableError as reason:
        left_out[str(reason)] += 1
    except InputError:
        if not options.skip_unreadable:
            raise
        left_out[UNREADABLE] += 1


def count_plain(line: JobLine) -> float:
    """Return the GPUs of a column with their number."""
    return line.number("gpus")


@dataclass(frozen=True, slots=True)
class TabularFormat:
    """A format with one line for each job; a second line of the same id is left out."""

    columns: Columns
    unknown: tuple[str, ...]
    count_gpus: Callable[[JobLine], float] = count_plain
    count_seconds: Callable[[JobLine], float | None] = lambda line: None
    describe: Callable[[JobLine], Mapping[str, object]] = lambda line: {}

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        seen: set[str] = set()
        for line in read_lines(path, self.columns, options, left_out):
            key = line.text("key")
            if key:
                if key in seen:
                    left_out[SEEN_BEFORE] += 1
                    continue
                seen.add(key)
            yield from take_usable(partial(self._job, line), options, left_out)

    def _job(self, line: JobLine) -> TableJob:
        gpus = self.count_gpus(line)
        return line.job(self.count_seconds(line), gpus, **self.describe(line))
