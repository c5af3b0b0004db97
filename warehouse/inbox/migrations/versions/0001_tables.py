"""Entries, the service that takes them in, and the API's tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "shockwave_entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.String(100), nullable=False, index=True),
        sa.Column("key", sa.String(200), unique=True),
        sa.Column("target", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("submitter", sa.String(200), nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("accepted_at", sa.Double, nullable=False),
    )
    op.create_table(
        "shockwave_service",
        sa.Column("name", sa.String(20), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "shockwave_tokens",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("tenant", sa.String(100), nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("shockwave_tokens")
    op.drop_table("shockwave_service")
    op.drop_table("shockwave_entries")
