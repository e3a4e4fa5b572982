"""The tables, for queries. The schema itself is made by the migrations; a test holds the two together."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

metadata = sa.MetaData()

branches = sa.Table(
    "branches",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("head", sa.Text, sa.ForeignKey("commits.id", use_alter=True, name="branches_head_fkey")),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("branch", sa.Text, sa.ForeignKey("branches.name"), nullable=False),
    sa.Column("parent", sa.Text, sa.ForeignKey("commits.id")),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    sa.Column("graph", sa.LargeBinary, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("summary", JSONB, nullable=False),
    sa.Index("commits_branch_created_at", "branch", "created_at"),
)

jobs = sa.Table(
    "jobs",
    metadata,
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
    sa.CheckConstraint("state IN ('pending', 'starting', 'running', 'failing', 'stopped')", name="jobs_state_known"),
)
