"""The profiles of datasets by the hour, and the distances that were found last."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "quality_profiles",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("field", sa.Text, primary_key=True),
        sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("profile", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "quality_drift",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("field", sa.Text, primary_key=True),
        sa.Column("distance", sa.Text, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("drifted", sa.Boolean, nullable=False),
    )
