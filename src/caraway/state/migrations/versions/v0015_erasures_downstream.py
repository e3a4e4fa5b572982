"""Erasures that reach what is computed from erased rows, and assets that nobody may use any more because of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.add_column("erasures", sa.Column("by_key", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("erasures", sa.Column("downstream", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("erasures", sa.Column("cut", JSONB(none_as_null=True)))
    op.add_column("assets", sa.Column("retired_at", sa.DateTime(timezone=True)))
    op.create_index("assets_retired", "assets", ["id"], postgresql_where=sa.text("retired_at IS NOT NULL"))
