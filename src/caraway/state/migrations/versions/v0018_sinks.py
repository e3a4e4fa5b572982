"""The positions of sinks that servers write, and sinks among the assets."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.drop_constraint("assets_kind_known", "assets")
    op.create_check_constraint("assets_kind_known", "assets", "kind IN ('topic', 'job', 'index', 'ingest', 'sink')")
    op.create_table(
        "sink_positions",
        sa.Column("sink", sa.Text, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("written", JSONB, nullable=False),
        sa.Column("until", JSONB, nullable=False),
        sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    )
