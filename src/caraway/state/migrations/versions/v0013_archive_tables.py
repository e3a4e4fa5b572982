"""The tables of the archive, as the processes that write them report them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "archive_tables",
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("positions", JSONB, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    )
