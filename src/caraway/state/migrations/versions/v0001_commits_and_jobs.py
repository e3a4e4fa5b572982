"""Commits, branch heads and the job registry."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "branches",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("head", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_table(
        "commits",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("branch", sa.Text, sa.ForeignKey("branches.name"), nullable=False),
        sa.Column("parent", sa.Text, sa.ForeignKey("commits.id")),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("graph", sa.LargeBinary, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("summary", JSONB, nullable=False),
    )
    op.create_index("commits_branch_created_at", "commits", ["branch", "created_at"])
    op.create_foreign_key("branches_head_fkey", "branches", "commits", ["head"], ["id"])
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("commit_id", sa.Text, sa.ForeignKey("commits.id"), nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("mode_reason", sa.Text, nullable=False),
        sa.Column("desired", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False, server_default=""),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("progress", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.CheckConstraint("desired IN ('running', 'stopped')", name="jobs_desired_known"),
        sa.CheckConstraint(
            "state IN ('pending', 'starting', 'running', 'failing', 'stopped')", name="jobs_state_known"
        ),
    )
    op.execute("INSERT INTO branches (name) VALUES ('main')")
