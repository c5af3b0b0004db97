"""Tables of the inbox."""

from sqlalchemy import BigInteger, Column, Double, MetaData, String, Table, Text

VERSION = 1
"""Version of the tables; a database of another version is refused."""

METADATA = MetaData()

VERSIONS = Table("shockwave_version", METADATA, Column("version", BigInteger, primary_key=True))
"""One row: the version of the database's tables."""

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
"""One row per entry. `name`: the name of the job, or of the tenant whose terms change; not unique;
else empty. `key`: the idempotency key. `job`: JSON of a job's declaration, a tenant's terms or a
new node; else empty. `accepted_at`: in seconds since the epoch."""

SERVICE = Table(
    "shockwave_service",
    METADATA,
    Column("name", String(20), primary_key=True),
    Column("value", Text, nullable=False),
)
"""The service that takes the entries in. `run`: the id of its run. `cluster`: the path of its
cluster file. `lease`: see `warehouse.inbox.lease`."""

TOKENS = Table(
    "shockwave_tokens",
    METADATA,
    Column("name", String(100), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("tenant", String(100), nullable=False),
    Column("made_at", Double, nullable=False),
)
"""Tokens of the API. `hash`: SHA-256 in hexadecimal. `tenant`: set for the role `tenant` only.
`made_at`: in seconds since the epoch."""
