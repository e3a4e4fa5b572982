"""Indexes with which commits and the ledger find assets without reading those that are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    not_gone = sa.text("state <> 'gone'")
    op.create_index("assets_not_gone", "assets", ["id"], postgresql_where=not_gone)
    op.create_index("assets_requires", "assets", ["requires"], postgresql_using="gin", postgresql_where=not_gone)
    op.create_index("ledger_due", "ledger", ["due_at", "id"], postgresql_where=sa.text("state = 'open'"))
