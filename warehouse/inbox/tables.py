"""Tables of the inbox; migrations bring databases to them."""

from sqlalchemy import BigInteger, Column, Double, MetaData, String, Table, Text

VERSION = "0002"
"""The newest migration."""

VERSION_TABLE = "shockwave_version"
"""Table with the migration that a database is at; Prefect has one of its own."""

METADATA = MetaData()

ENTRIES = Table(
    "shockwave_entries",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(20), nullable=False),
    Column("name", String(100), nullable=False, index=True),
    Column("key", String(200), unique=True),
    Column("target", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
    Column("submitter", String(200), nullable=False),
    Column("job", Text, nullable=False),
    Column("accepted_at", Double, nullable=False),
)
"""An entry a row. `name`: of a job, not unique, or of the tenant that a command is about, else
empty. `key`: makes an entry idempotent. `job`: of a job its declaration, of a command about a
tenant the new terms, as JSON; else empty. `accepted_at`: in seconds since the epoch."""

SERVICE = Table(
    "shockwave_service",
    METADATA,
    Column("name", String(20), primary_key=True),
    Column("value", Text, nullable=False),
)
"""What is known of the service that takes the entries: `run`, the id of its run; `cluster`, the
path of its cluster file; `lease`, see `warehouse.inbox.lease`."""

TOKENS = Table(
    "shockwave_tokens",
    METADATA,
    Column("name", String(100), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("tenant", String(100), nullable=False),
    Column("made_at", Double, nullable=False),
)
"""Tokens of the API. `hash`: SHA-256 in hexadecimal. `tenant`: of the role of that name, else
empty. `made_at`: in seconds since the epoch."""
