"""Sealed secrets; erased keys as hashes, with the places that have removed them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0006"
down_revision = "0004"
branch_labels = None
depends_on = None

NOW = sa.func.clock_timestamp()


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("updated_by", sa.Text, nullable=False),
    )
    op.create_table(
        "erasures",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("columns", ARRAY(sa.Text), nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("recorded_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("topic", "columns", "key_id", "digest", name="erasures_once"),
        sa.Index("erasures_unrecorded", "id", postgresql_where=sa.text("recorded_at IS NULL")),
    )
    op.create_table(
        "erasure_places",
        sa.Column("erasure_id", sa.BigInteger, sa.ForeignKey("erasures.id"), primary_key=True),
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    )
