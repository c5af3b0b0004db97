"""The columns of a warehouse's Parquet files."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import pyarrow as pa

from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec
from tasks.record import Package, RoundRecord, RunHeader, Timings
from warehouse.store.arrow import arrow_schema


@dataclass(frozen=True, slots=True)
class HeaderLabel:
    """Columns of a header's file in addition to the header."""

    run: str
    created_at: datetime
    packages: tuple[Package, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class RoundLabel:
    """Columns of a round's file in addition to the record."""

    run: str
    hash: str
    timings: Timings


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A row of a run's `workload.parquet`: a job and its ground truth."""

    run: str
    spec: JobSpec
    truth: GroundTruth


class CellStatus(StrEnum):
    """Status of a cell."""

    PENDING = "pending"
    """Waiting, running or interrupted."""
    FINISHED = "finished"
    """The cell's run has ended."""
    FAILED = "failed"
    """The cell failed; the row has the reason."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A row of `campaigns/CAMPAIGN/cells.parquet`: a cell and its run.

    Texts are empty and seconds are 0 where they do not apply.

    Attributes:
        cell: Name of the cell within the campaign.
        options: Name of the variant of the settings.
        hash: Last hash of the run.
        seconds: Wall-clock time of the run.
        key: Hash of the run's start and of the code.
    """

    campaign: str
    cell: str
    run: str
    policy: str
    workload: str
    cluster: str
    options: str
    seed: int
    status: CellStatus
    hash: str
    seconds: float
    key: str
    reason: str


HEADER = pa.schema([*arrow_schema(HeaderLabel), *arrow_schema(RunHeader)])
ROUND = pa.schema([*arrow_schema(RoundLabel), *arrow_schema(RoundRecord)])
WORKLOAD = arrow_schema(PlayedJob)
CELLS = arrow_schema(CellRow)
GROUP_ROUNDS = 64
"""Rounds in a row group of an ended run's file; a damaged group loses no more. An engineering
choice; no sweep is recorded."""
