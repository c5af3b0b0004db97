"""The hash chain: each record holds the previous record's hash, the first the header's."""

from collections.abc import Iterator

from tasks.record import RoundRecord


def broken(record: RoundRecord, digest: str, noted: str, before: str) -> Iterator[str]:
    """Check a link of the chain; yields what is wrong.

    Args:
        record: The record.
        digest: Hash of the stored contents.
        noted: Hash stored with the record when it was written.
        before: Hash stored with the previous record, or of the header; empty if that record
            is missing.
    """
    if digest != noted:
        yield "was changed: its contents have another hash"
    if before and record.previous_hash != before:
        previous = f"round {record.round - 1}" if record.round else "the header"
        yield f"does not follow {previous}: another hash is noted"
