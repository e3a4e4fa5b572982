"""The addresses of the servers that share an index, and the progress of their shards."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "index_servers",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("address", sa.Text, nullable=False),
    )
    op.create_table(
        "index_standings",
        sa.Column("shards", sa.Integer, primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("asset", sa.Text, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Boolean, nullable=False),
        sa.Column("frontier_us", sa.BigInteger),
    )
