"""Each commit has the generations of its assets, so that several generations of a content may live at once."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.drop_index("assets_content_live", "assets")
    op.add_column("commits", sa.Column("generations", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")))
    # Until now, all commits used the one living generation of a content.
    op.execute(
        """
        UPDATE commits SET generations = living.generations
        FROM (
            SELECT jsonb_object_agg(content, generation) AS generations FROM assets
            WHERE generation > 1 AND state NOT IN ('destroying', 'gone')
        ) AS living
        WHERE living.generations IS NOT NULL
        """
    )
