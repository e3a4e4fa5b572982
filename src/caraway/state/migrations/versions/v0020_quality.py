"""The counts of expectations."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    now = sa.func.clock_timestamp()
    op.create_table(
        "quality_positions",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("positions", JSONB, nullable=False),
        sa.Column("counted_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
    )
    op.create_table(
        "quality_counts",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("start", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("evaluated", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "quality_totals",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("evaluated", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text),
        sa.Column("changed_at", sa.DateTime(timezone=True)),
        sa.Column("violated_at", sa.DateTime(timezone=True)),
        sa.Column("notified_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "quality_samples",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("check_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("row", sa.LargeBinary, nullable=False),
    )
    op.create_index("quality_samples_check", "quality_samples", ["check_id", "number", "id"])
