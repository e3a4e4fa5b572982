"""Offline queries."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "offline_queries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("workflow", sa.Text, nullable=False),
        sa.Column("request", JSONB, nullable=False),
        sa.Column("cuts", JSONB(none_as_null=True)),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("rows", sa.BigInteger),
        sa.Column("parts", JSONB, nullable=False, server_default="[]"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("error", sa.Text),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
    )
    op.create_index("offline_queries_branch", "offline_queries", ["branch", "asked_at"])
