"""Dead letters of sinks whose changes are to be sent again."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "sink_replays",
        sa.Column("sink", sa.Text, primary_key=True),
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("letter", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    )
    op.create_index("sink_replays_in_order", "sink_replays", ["sink", "number"])
