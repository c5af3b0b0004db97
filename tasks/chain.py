"""The chain of hashes: each record notes the hash of the one before, the first the header's."""

from collections.abc import Iterator, Sequence

from predictor.errors import WarehouseError
from tasks.record import RoundRecord, RunHeader, record_hash


def broken(record: RoundRecord, digest: str, noted: str, before: str) -> Iterator[str]:
    """Whatever is wrong with a link of the chain.

    Args:
        record: The record.
        digest: Its hash.
        noted: The hash that was noted for it when it was written.
        before: The hash noted for the record before it, or that of the header; empty if that
            record is missing.
    """
    if digest != noted:
        yield "was changed: its contents have another hash"
    if before and record.previous_hash != before:
        previous = f"round {record.round - 1}" if record.round else "the header"
        yield f"does not follow {previous}: another hash is noted"


def check_chain(run: str, header: RunHeader, rounds: Sequence[tuple[RoundRecord, str]]) -> None:
    """Refuse records that were changed.

    Args:
        run: The run's id.
        header: What it started from.
        rounds: Its records, each with the hash noted for it.

    Raises:
        WarehouseError: One does not have its hash, or does not follow the one before.
    """
    before = record_hash(header)
    for record, noted in rounds:
        if any(broken(record, record_hash(record), noted, before)):
            raise WarehouseError(
                f"run {run!r}, round {record.round}",
                "was changed after it was recorded",
                f"see shockwave audit {run}",
            )
        before = noted
