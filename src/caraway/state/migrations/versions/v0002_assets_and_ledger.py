"""Assets, the references of branches to them, and the ledger of open actions; branches may serve an older commit."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    # Commits stay when their branch is deleted, so they can't refer to a row of `branches`.
    op.drop_constraint("commits_branch_fkey", "commits", type_="foreignkey")
    op.add_column("branches", sa.Column("serving", sa.Text))
    op.create_foreign_key("branches_serving_fkey", "branches", "commits", ["serving"], ["id"])
    op.execute("UPDATE branches SET serving = head")
    op.create_table(
        "assets",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("requires", ARRAY(sa.Text), nullable=False),
        sa.Column("commit_id", sa.Text, sa.ForeignKey("commits.id"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.UniqueConstraint("content", "generation", name="assets_content_generation"),
        sa.CheckConstraint("kind IN ('topic', 'job', 'index', 'ingest')", name="assets_kind_known"),
        sa.CheckConstraint(
            "state IN ('planned', 'creating', 'backfilling', 'ready', 'failing', 'destroying', 'gone')",
            name="assets_state_known",
        ),
    )
    op.create_index(
        "assets_content_live",
        "assets",
        ["content"],
        unique=True,
        postgresql_where=sa.text("state NOT IN ('destroying', 'gone')"),
    )
    op.create_table(
        "asset_references",
        sa.Column("branch", sa.Text, sa.ForeignKey("branches.name"), primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("asset_id", sa.Text, sa.ForeignKey("assets.id"), primary_key=True),
        sa.CheckConstraint("role IN ('head', 'serving')", name="asset_references_role_known"),
    )
    op.create_index("asset_references_asset_id", "asset_references", ["asset_id"])
    op.create_table(
        "ledger",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("asset_id", sa.Text, sa.ForeignKey("assets.id"), nullable=False),
        sa.Column("deed", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("leased_until", sa.DateTime(timezone=True)),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("deed IN ('create', 'destroy')", name="ledger_deed_known"),
        sa.CheckConstraint("state IN ('open', 'done', 'cancelled')", name="ledger_state_known"),
    )
    op.create_index("ledger_open", "ledger", ["asset_id"], unique=True, postgresql_where=sa.text("state = 'open'"))
