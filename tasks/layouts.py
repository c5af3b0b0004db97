"""Layouts of records, and migrations from the oldest readable to the current layout.

A record's version is its layout. Records are hashed as stored; when read, they are upgraded
to the current layout by a sequence of migrations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from predictor.throughput import UNTYPED

VERSION = 7
"""The current layout."""

OLDEST = 3
"""The oldest readable layout, the first released."""

FIRST_WITH_REASONS = 4
"""The first layout whose events have reasons."""

FIRST_WITH_CHECKSUMS = 4
"""The first layout whose files have checksums from the beginning."""

FIRST_WITH_WORK = 6
"""The first layout with forecasts of work; earlier layouts have seconds only."""

FIRST_WITH_OPTIONAL = 6
"""The first layout whose rows may have optional fields (`tasks.rows`)."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration from a layout to the next.

    Attributes:
        header: Changes a header's row in place.
        record: Changes a round's row in place, given the header's row in the new layout.
    """

    header: Callable[[Row], None]
    record: Callable[[Row, Row], None]


def header_upgraded(row: Row) -> Row:
    """A header's row of any layout, upgraded to the current layout.

    Rows of layouts with jobs and truths in the header keep them, as `specs` and `truths`.
    """
    for migration in MIGRATIONS[row["version"] - OLDEST :]:
        migration.header(row)
    return row


def record_upgraded(row: Row, header: Row) -> Row:
    """A round's row of any layout, upgraded to the current layout.

    Args:
        row: The row as stored.
        header: The row of its run's header, in the current layout.
    """
    for migration in MIGRATIONS[row["version"] - OLDEST :]:
        migration.record(row, header)
    return row


def _to_4_header(row: Row) -> None:
    row["settings"]["forked"] = []


def _to_4_record(row: Row, header: Row) -> None:
    """Events have a reason."""
    for event in (*row["finished"], *row["events"]):
        event["reason"] = ""


def _to_5_header(row: Row) -> None:
    row["settings"]["runtime"] = "virtual"


def _to_5_record(row: Row, header: Row) -> None:
    """Solves have the drained nodes, and progress what containers take of their machines."""
    row["solve"]["drained"] = []
    for entry in row["progress"]:
        entry |= {"cpu_seconds": 0.0, "memory_bytes": 0, "gpu_share": 0.0}


def _to_6_header(row: Row) -> None:
    """GPUs have types, clusters pools, jobs demands; the workload is kept apart."""
    settings = row["settings"]
    per_node = settings.pop("gpus_per_node")
    for cluster in (settings, *settings["forked"]):
        gpus = cluster.pop("gpus")
        cluster["pools"] = [{"gpu_type": UNTYPED, "gpus": gpus, "gpus_per_node": per_node}]
    for entry in row["profile"]:
        entry |= {"gpu_type": UNTYPED, "gpus": entry.pop("scale_factor")}
    for spec in (*row["specs"], *(job["spec"] for job in row["history"])):
        gpus = spec.pop("scale_factor")
        spec["demand"] = {"least": gpus, "most": gpus, "types": []}
    row["workload"] = ""


def _to_6_record(row: Row, header: Row) -> None:
    """Records have the jobs that arrived; bids rows by allocation; prices a GPU type."""
    specs = {spec["job_id"]: spec for spec in header["specs"]}
    per_node = header["settings"]["pools"][0]["gpus_per_node"]

    def own(job_id: int) -> Row:
        gpus = specs[job_id]["demand"]["least"]
        nodes = -(-gpus // per_node)
        return {"gpu_type": UNTYPED, "gpus": gpus, "nodes": nodes, "shared_with": []}

    row["arrivals"] = [specs[job_id] for job_id in row["arrivals"]]
    row["estimates"] = [
        {
            "job_id": forecast["job_id"],
            "allocation": own(forecast["job_id"]),
            "done": forecast["progress"][0],
            **{name: forecast[name] for name in _SECONDS},
        }
        for forecast in row["forecasts"]
    ]
    row["forecasts"] = []
    row["bids"] = [
        {
            "job_id": bid["job_id"],
            "weight": bid["weight"],
            "rows": [
                {
                    "allocation": own(bid["job_id"]),
                    "utility": bid["utility"],
                    "remaining_seconds": bid["remaining_seconds"],
                }
            ],
        }
        for bid in row["bids"]
    ]
    solve = row["solve"]
    price = solve.pop("price")
    cleared = solve["status"] not in ("rule", "kept") and solve["reason"] != "shares of time"
    solve["prices"] = [{"gpu_type": UNTYPED, "price": price}] if cleared else []
    row["leases"] = row.pop("launches")


def _to_7_header(row: Row) -> None:
    """`shockwave` cleared the market of the window in each round, as it does with `preview`."""
    settings = row["settings"]
    for origin in (settings, *settings["forked"]):
        if origin["policy"] == "shockwave":
            given = [*origin["parameters"], {"name": "preview", "value": 1.0}]
            origin["parameters"] = sorted(given, key=lambda parameter: str(parameter["name"]))


def _to_7_record(row: Row, header: Row) -> None:
    """Rounds are as they were."""


_SECONDS = ("run_seconds", "remaining_seconds", "low_seconds", "high_seconds")

MIGRATIONS = (
    Migration(_to_4_header, _to_4_record),
    Migration(_to_5_header, _to_5_record),
    Migration(_to_6_header, _to_6_record),
    Migration(_to_7_header, _to_7_record),
)
"""Migrations in order, from layout `OLDEST` to `VERSION`."""
