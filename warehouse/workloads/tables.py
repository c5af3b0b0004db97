"""Throughput tables: steps per second by worker type, and how they were measured."""

import ast
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from predictor.errors import InputError, check_plain
from predictor.throughput import Profile
from warehouse.workloads import gavel
from warehouse.workloads.fields import JOB_TYPE, LARGEST, read_text

WORKER_TYPE = "v100"
"""Worker type of written throughputs, and the default among several: that of the public tables."""

MEASURED = "measured"
"""Key of a throughput table beside the worker types: how, when and where rates were measured."""

LOSSES = "losses"
"""Key of a throughput table with the training loss after each epoch, by model."""


def read_throughputs(path: Path, gpu_types: Collection[str] = ()) -> Profile:
    """Read the steps per second of jobs alone, and of pairs measured by this project's profiler.

    Pairs of types without a part `measured`, as in the published tables, are ignored.

    Args:
        path: The table: JSON, or Gavel's CSV.
        gpu_types: Worker types; by default V100, or the only one.

    Raises:
        InputError: The file is not a throughput table, or lacks a worker type.
    """
    if gavel.is_table(path):
        return gavel.read_table(path, gpu_types)
    document = read_throughput_table(path)
    types = [name for name in document if name not in (MEASURED, LOSSES)]
    measured = document.get(MEASURED, {})
    if not isinstance(measured, dict):
        raise InputError(f"{path}, {MEASURED}", "is not a JSON object", "measure it again")
    rates: dict[tuple[str, int, str, int], float] = {}
    pairs: dict[tuple[str, int, str, int, str, int], float] = {}
    for worker_type in gpu_types or ((types[0],) if len(types) == 1 else (WORKER_TYPE,)):
        if not isinstance(document.get(worker_type), dict):
            remedy = (
                "measure it with shockwave cluster profile"
                if gpu_types
                else "give a throughput table"
            )
            raise InputError(str(path), f"has no worker type {worker_type!r}", remedy)
        alone = _throughputs(path, worker_type, document[worker_type])
        rates |= {(model, size, worker_type, gpus): r for (model, size, gpus), r in alone}
        if worker_type in measured:
            pairs |= _pairs(path, worker_type, document[worker_type], rates)
    losses = _losses(path, document.get(LOSSES, {}))
    kinds = {kind for _, _, kind, _ in rates}
    return Profile(rates, str(path), pairs, losses, _restarts(path, measured, kinds))


def read_throughput_table(path: Path) -> dict[str, Any]:
    """Read a throughput table, by worker type, without interpreting it.

    Raises:
        InputError: The file is not a JSON object.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg})"
        raise InputError(f"{path}:{error.lineno}", problem, "give a throughput table") from None
    except (ValueError, RecursionError):  # an oversized number or too deep nesting
        raise InputError(str(path), "not valid JSON", "give a throughput table") from None
    if not isinstance(document, dict):
        raise InputError(str(path), "is not a JSON object", "give a throughput table")
    return document


def _throughputs(
    path: Path, worker_type: str, table: Mapping[str, Any]
) -> Iterable[tuple[tuple[str, int, int], float]]:
    for key, entry in table.items():
        place = f"{path}, {worker_type}, {key}"
        try:
            job_type, scale_factor = ast.literal_eval(key)
            match = JOB_TYPE.fullmatch(job_type)
            if match is None and "(batch size" in job_type:
                raise ValueError
            if match is not None:  # other entries name models without a batch size
                batch_size = int(match["batch_size"])
                rate = _rate(entry["null"])
                if not batch_size:
                    raise ValueError
                yield (match["model"], batch_size, int(scale_factor)), rate
        except (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError):
            problem = 'is not an entry like "(\'LM (batch size 5)\', 1)": {"null": 10.5}'
            raise InputError(place, problem, "correct the entry") from None


def _pairs(
    path: Path,
    worker_type: str,
    table: Mapping[str, Any],
    alone: Mapping[tuple[str, int, str, int], float],
) -> dict[tuple[str, int, str, int, str, int], float]:
    """Return the rates of each job beside others, without `null` entries."""
    found = {}
    for key, entry in table.items():
        for other, rates in entry.items():
            if other == "null":
                continue
            try:
                (model, size, gpus), (other_model, other_size, other_gpus) = _job(key), _job(other)
                rate, _ = map(_rate, rates)
                if rate < 0.0 or gpus != other_gpus:
                    raise ValueError
            except (ValueError, SyntaxError, TypeError, OverflowError, RecursionError):
                raise InputError(
                    f"{path}, {worker_type}, {key}, {other}",
                    "is not a pair like \"('LM (batch size 5)', 1)\": [6.2, 4.1]",
                    "correct it, or measure it again",
                ) from None
            pair = model, size, other_model, other_size, worker_type, gpus
            if rate > gavel.MOST_TIMES_ALONE * alone[gavel.of_first(pair)]:
                place = f"{path}, {worker_type}, {key}, {other}"
                raise InputError(place, *gavel.too_fast(rate, alone[gavel.of_first(pair)]))
            found[pair] = rate
    pair_one_way = gavel.one_way(found)
    if pair_one_way:
        model, size, other_model, other_size, _, gpus = pair_one_way
        raise InputError(
            f"{path}, {worker_type}, ('{model} (batch size {size})', {gpus})",
            f"is paired with {other_model} (batch size {other_size}), which does not list it",
            "list each pair in both directions",
        )
    return found


def _losses(path: Path, table: Any) -> dict[str, tuple[float, ...]]:
    """Return the training loss after each epoch, by model."""
    if not isinstance(table, dict):
        raise InputError(f"{path}, {LOSSES}", "is not a JSON object", "give lists by model")
    found = {}
    for model, curve in table.items():
        sound = isinstance(curve, list) and curve and all(type(x) in (int, float) for x in curve)
        if not sound or not all(abs(loss) <= LARGEST for loss in curve):
            problem, remedy = "is not a list of losses", "give the loss after each epoch"
            raise InputError(f"{path}, {LOSSES}, {model}", problem, remedy)
        found[model] = tuple(map(float, curve))
    return found


def _restarts(
    path: Path, measured: Mapping[str, Any], kinds: Collection[str]
) -> dict[tuple[str, int], float]:
    """Return restart times by GPU type and GPUs: the medians of all measurements."""
    found: dict[tuple[str, int], list[float]] = {}
    for kind in sorted(kinds):
        for key, entry in _part(path, measured, kind).items():
            place = f"{path}, {MEASURED}, {kind}, {key}"
            try:
                _, _, gpus = _job(key)
                took = float(check_plain(str(entry["restart_seconds"])))
                if not 0.0 < took <= LARGEST:
                    raise ValueError
            except KeyError:
                continue
            except (ValueError, SyntaxError, TypeError, OverflowError, RecursionError):
                problem = 'has no "restart_seconds" above 0'
                raise InputError(place, problem, "measure it again") from None
            found.setdefault((kind, gpus), []).append(took)
    return {key: median(taken) for key, taken in found.items()}


def _part(path: Path, measured: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return how each combination was measured on a GPU type; empty without measurements."""
    about = measured.get(kind, {})
    entries = about.get("entries", {}) if isinstance(about, dict) else None
    if not isinstance(entries, dict):
        place = f"{path}, {MEASURED}, {kind}"
        raise InputError(place, "has no JSON object of entries", "measure it again")
    return entries


def _rate(value: Any) -> float:
    """Return steps per second; 0 or less means that the job cannot run."""
    rate = float(check_plain(str(value)))
    if not abs(rate) <= LARGEST or 0.0 < rate < 1.0 / LARGEST:
        raise ValueError
    return rate


def _job(key: str) -> tuple[str, int, int]:
    """Return model, batch size and GPUs of a key."""
    job_type, scale_factor = ast.literal_eval(key)
    match = JOB_TYPE.fullmatch(job_type)
    if match is None:
        raise ValueError
    return match["model"], int(match["batch_size"]), int(scale_factor)
