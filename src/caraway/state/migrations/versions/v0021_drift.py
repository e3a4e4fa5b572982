"""The profiles of served features by the hour, references, and the distances that were found last."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    now = sa.func.clock_timestamp()
    op.create_table(
        "drift_positions",
        sa.Column("topic_id", sa.Text, primary_key=True),
        sa.Column("positions", JSONB, nullable=False),
        sa.Column("passed_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
    )
    op.create_table(
        "drift_profiles",
        sa.Column("branch", sa.Text, primary_key=True),
        sa.Column("feature", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("profile", sa.LargeBinary, nullable=False),
    )
    op.create_index("drift_profiles_hour", "drift_profiles", ["hour"])
    op.create_table(
        "drift_references",
        sa.Column("branch", sa.Text, primary_key=True),
        sa.Column("feature", sa.Text, primary_key=True),
        sa.Column("profile", sa.LargeBinary, nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
        sa.Column("set_by", sa.Text, nullable=False),
    )
    op.create_table(
        "drift_findings",
        sa.Column("branch", sa.Text, primary_key=True),
        sa.Column("feature", sa.Text, primary_key=True),
        sa.Column("distance", sa.Text, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("drifted", sa.Boolean, nullable=False),
    )
