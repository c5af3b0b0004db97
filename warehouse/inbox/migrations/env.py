"""Runs migrations on the connection of `warehouse.inbox.database`."""

from alembic import context

from warehouse.inbox.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
