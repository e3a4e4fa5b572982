"""Positions of sources of every kind, and what their readers remember beside them."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.alter_column("source_positions", "read", new_column_name="position")
    op.add_column("source_positions", sa.Column("closed", sa.Boolean, nullable=False, server_default="false"))
    op.alter_column("source_positions", "closed", server_default=None)
    op.create_table(
        "source_items",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("item", sa.Text, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
