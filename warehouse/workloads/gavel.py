"""Gavel's traces and throughputs (Narayanan et al., OSDI '20), as its authors publish them.

A trace is tab-separated, without a header, and has ten columns per job, or seven if older. Jobs are
static: the job type states model and batch size. Throughputs are a CSV table of jobs alone and in
pairs on all GPU types. `docs/traces.md` describes both.
"""

import gzip
import math
import zlib
from collections.abc import Collection
from pathlib import Path

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError, likely
from predictor.job import JobSpec, Regime
from predictor.throughput import Profile
from warehouse.workloads.fields import JOB_TYPE, LARGEST, Row, parse_rows
from warehouse.workloads.opening import check_is_file

COLUMNS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "slo",
    "arrival",
)

OLDER_COLUMNS = (
    "job_type",
    "command",
    "steps_argument",
    "needs_data",
    "total_steps",
    "arrival",
    "scale_factor",
)

SHAPES = {len(columns): columns for columns in (COLUMNS, OLDER_COLUMNS)}
"""Columns of a trace, by their number."""

TABLE_COLUMNS = ("gpu_type", "job_type", "scale_factor", "partner_job_type", "steps_per_second")
"""Columns read from the throughputs; the row of a pair has its first job's rate."""

SPREAD = "_unconsolidated"
"""Suffix of a GPU type for gangs on several nodes."""

USUAL_TYPE = "v100"
"""Default GPU type of tables with several types."""

EPOCH_STEPS = 1_000
"""Steps per epoch of models without a data set in the published simulators. A convention."""

MOST_BYTES = 2**28
"""Largest size of an unpacked table of throughputs, in bytes: a compressed file can unpack to a
thousand times its size. An engineering bound."""

MOST_TIMES_ALONE = 10.0
"""Largest plausible speed-up of a job by sharing its GPUs. The published table has none above 1.
Measurements at other times, on busier machines, vary by less than this; a larger ratio means
another unit or column. An engineering bound."""

_Key = tuple[str, int, str, int]
_Rates = dict[_Key, float]
_Pair = tuple[str, int, str, int, str, int]
_Pairs = dict[_Pair, float]


def is_table(path: Path) -> bool:
    """Return whether a file's name is that of a CSV table of throughputs."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_table(path: Path, gpu_types: Collection[str] = ()) -> Profile:
    """Read the steps per second of jobs, alone, in pairs on the same GPUs, and on several nodes.

    Args:
        path: The table; compressed if its name ends in .gz.
        gpu_types: GPU types to read, all of them required; by default V100, or the only type.

    Raises:
        InputError: The file is no such table, or lacks a GPU type; the error names file and line.
    """
    table = read_whole(path, gpu_types)
    known = table.gpu_types
    if gpu_types or len(known) == 1:
        return table.of_types(gpu_types or known)
    if USUAL_TYPE not in known:
        problem = f"has no GPU type {USUAL_TYPE!r}, and none is asked for"
        remedy = f"give pools of its types: {', '.join(known)}"
        raise InputError(str(path), problem, remedy)
    return table.of_types((USUAL_TYPE,))


def read_whole(path: Path, gpu_types: Collection[str] = ()) -> Profile:
    """Read a whole table of throughputs, but pairs of the required types (by default any) only.

    Raises:
        InputError: The file is no such table, or lacks a GPU type; the error names file and line.
    """
    lines: dict[tuple[bool, _Key | _Pair], Row] = {}
    tables: dict[bool, tuple[_Rates, _Pairs]] = {spread: ({}, {}) for spread in (False, True)}
    for row in parse_rows(path, _text(path), TABLE_COLUMNS):
        partner, named = row.values["partner_job_type"], row.name("gpu_type")
        kind = named.removesuffix(SPREAD)
        if partner and gpu_types and kind not in gpu_types:
            continue
        rates, pairs = tables[kind != named]
        model, batch_size = job_type(row)
        rate = row.number("steps_per_second", float)
        if not 0.0 <= rate < math.inf:
            raise row.refusal("steps_per_second", f"{rate:g} is not a rate", "give 0 or more")
        if 0.0 < rate < 1.0 / LARGEST:
            problem = f"at {rate:g} a step takes longer than the largest number allowed"
            raise row.refusal("steps_per_second", problem, "give 0 where the job cannot run")
        gpus = row.positive("scale_factor", int)
        key: _Key | _Pair
        if partner:
            key = pair = model, batch_size, *job_type(row, "partner_job_type"), kind, gpus
            pairs[pair] = rate
        else:
            key = alone = model, batch_size, kind, gpus
            rates[alone] = rate
        if (kind != named, key) in lines:
            raise row.refusal("job_type", "this line is there twice", "leave one out")
        lines[kind != named, key] = row
    for several, (_, pairs) in tables.items():
        pair_one_way = one_way(pairs)
        if pair_one_way:
            problem = "has no line for the other job of this pair"
            remedy = "give each pair both ways round"
            raise lines[several, pair_one_way].refusal("partner_job_type", problem, remedy)
    (rates, pairs), (spread_rates, spread_pairs) = tables[False], tables[True]
    for several, there in ((False, rates), (True, rates | spread_rates)):
        for pair, shared in tables[several][1].items():
            _check_pair(lines[several, pair], shared, there.get(of_first(pair)))
    spread = Profile(
        {key: rate for key, rate in spread_rates.items() if key[3] > 1},
        str(path),
        {key: rate for key, rate in spread_pairs.items() if key[5] > 1},
    )
    table = Profile(rates, str(path), pairs, by_nodes={2: spread} if spread.rates else {})
    known = table.gpu_types
    if not known:
        problem = "has no throughputs of jobs alone, on one node"
        raise InputError(str(path), problem, "give a table that has")
    for key, rate in spread_rates.items():
        _check_spread(lines[True, key], rate, rates.get(key))
    for kind in gpu_types:
        if kind not in known:
            remedy = f"{likely(kind, known)}it has {', '.join(known)}"
            raise InputError(str(path), f"has no GPU type {kind!r}", remedy)
    return table


def of_first(pair: _Pair) -> _Key:
    """Return the key of a pair's first job, alone."""
    model, size, _, _, kind, gpus = pair
    return model, size, kind, gpus


def _check_pair(row: Row, rate: float, alone: float | None) -> None:
    """Refuse a rate beside another job that lacks the rate alone, or is far above it."""
    if alone is None:
        problem, remedy = "has no line for this job alone", "give it as well, or leave this out"
        raise row.refusal("job_type", problem, remedy)
    if rate > MOST_TIMES_ALONE * alone:
        raise row.refusal("steps_per_second", *too_fast(rate, alone))


def too_fast(rate: float, alone: float) -> tuple[str, str]:
    """Return problem and remedy for a rate beside another job far above the rate alone."""
    return f"{rate:g} beside another job is far above {alone:g} alone", "give steps per second"


def one_way(pairs: Collection[_Pair]) -> _Pair | None:
    """Return the first pair without an entry in the other order, if there is one."""
    for pair in pairs:
        model, size, other, other_size, kind, gpus = pair
        if (other, other_size, model, size, kind, gpus) not in pairs:
            return pair
    return None


def _check_spread(row: Row, rate: float, on_one_node: float | None) -> None:
    """Refuse a rate on several nodes that is implausible given the rate on one node."""
    kind = row.name("gpu_type").removesuffix(SPREAD)
    if on_one_node is None:
        problem = "has no line for this job on one node"
        raise row.refusal("gpu_type", problem, f"give one of {kind} as well, or leave this out")
    if row.positive("scale_factor", int) == 1 and rate != on_one_node:
        problem = f"one GPU is on one node, where the job makes {on_one_node:g}"
        raise row.refusal("steps_per_second", problem, "give the same, or leave this line out")


def _text(path: Path) -> str:
    check_is_file(path)
    try:
        packed = path.suffix.lower() == ".gz"
        with gzip.open(path) if packed else path.open("rb") as file:
            plain = file.read(MOST_BYTES + 1)
        if len(plain) > MOST_BYTES:
            problem, remedy = "is longer than any table of throughputs", "give one that is shorter"
            raise InputError(str(path), problem, remedy)
        return plain.decode("utf-8-sig")
    except EOFError:
        raise InputError(str(path), "is truncated", "give the whole file") from None
    except (OSError, zlib.error, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text"
        if not isinstance(error, UnicodeDecodeError):
            reason = getattr(error, "strerror", None) or "is not compressed by gzip, or damaged"
        raise InputError(str(path), reason, "give a readable file") from None


def job_type(row: Row, column: str = "job_type", *, alone: bool = True) -> tuple[str, int]:
    """Return model and batch size of a job type; a model `alone` has batch size 1."""
    text = row.name(column)
    match = JOB_TYPE.fullmatch(text)
    if match is None and ("(batch size" in text or not alone):
        problem = f"{text!r} is not like 'LM (batch size 5)'"
        remedy = "give a whole number above 0" + ", or the model alone" * alone
        raise row.refusal(column, problem, remedy)
    if match is None:
        return text, 1
    if not int(match["batch_size"]):
        raise row.refusal(column, "a batch size of 0", "give a whole number above 0")
    return match["model"], int(match["batch_size"])


def static_truth(spec: JobSpec, profile: Profile) -> GroundTruth:
    """Return the truth of a static job: its steps at its one rate.

    Raises:
        InputError: The profile cannot run the job.
    """
    held = (Regime(spec.batch_size, spec.epochs),)
    rate = profile.rate(spec, spec.batch_size, profile.reference(spec))
    return GroundTruth(spec.job_id, spec.total_steps / rate, held, held)
