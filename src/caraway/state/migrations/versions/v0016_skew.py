"""The findings of the skew watch."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    now = sa.func.clock_timestamp()
    op.create_table(
        "skew_positions",
        sa.Column("topic_id", sa.Text, primary_key=True),
        sa.Column("positions", JSONB, nullable=False),
        sa.Column("passed_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
    )
    op.create_table(
        "skew_counts",
        sa.Column("branch", sa.Text, primary_key=True),
        sa.Column("commit_id", sa.Text, primary_key=True),
        sa.Column("feature", sa.Text, primary_key=True),
        sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("finding", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
    )
    op.create_index("skew_counts_hour", "skew_counts", ["hour"])
    op.create_table(
        "skew_totals",
        sa.Column("branch", sa.Text, primary_key=True),
        sa.Column("feature", sa.Text, primary_key=True),
        sa.Column("finding", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "skew_samples",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.Column("feature", sa.Text, nullable=False),
        sa.Column("finding", sa.Text, nullable=False),
        sa.Column("served_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("served", sa.Text, nullable=False),
        sa.Column("recomputed", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("row", sa.BigInteger, nullable=False),
    )
    op.create_index("skew_samples_feature", "skew_samples", ["branch", "feature", "finding", "id"])
    op.create_index("skew_samples_position", "skew_samples", ["offset", "partition", "row"])
