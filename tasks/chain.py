"""The chain of hashes: each record notes the hash of the one before, the first the header's."""

from collections.abc import Iterator

from tasks.record import RoundRecord


def broken(record: RoundRecord, digest: str, noted: str, before: str) -> Iterator[str]:
    """Whatever is wrong with a link of the chain.

    Args:
        record: The record.
        digest: The hash of what is stored.
        noted: The hash that was noted for it when it was written.
        before: The hash noted for the record before it, or that of the header; empty if that
            record is missing.
    """
    if digest != noted:
        yield "was changed: its contents have another hash"
    if before and record.previous_hash != before:
        previous = f"round {record.round - 1}" if record.round else "the header"
        yield f"does not follow {previous}: another hash is noted"
