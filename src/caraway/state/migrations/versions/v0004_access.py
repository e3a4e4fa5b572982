"""Accounts, roles, tokens, and the audit log."""

import json

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ALL = [{"modes": ["read-definition", "write-definition", "read-data", "write-data"]}]
NOW = sa.func.clock_timestamp()


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.create_table(
        "accounts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.CheckConstraint("kind IN ('user', 'service')", name="accounts_kind_known"),
    )
    op.create_table(
        "roles",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("grants", JSONB, nullable=False),
    )
    op.create_table(
        "account_roles",
        sa.Column("account", sa.Text, sa.ForeignKey("accounts.name"), primary_key=True),
        sa.Column("role", sa.Text, sa.ForeignKey("roles.name"), primary_key=True),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, sa.ForeignKey("accounts.name"), nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
    )
    op.create_table("access_changes", sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False))
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("times", sa.Integer, nullable=False, server_default="1"),
    )
    op.execute("INSERT INTO access_changes VALUES (1)")
    # The first role; no account has it yet.
    op.execute(sa.text("INSERT INTO roles VALUES ('admin', CAST(:grants AS jsonb))").bindparams(grants=json.dumps(ALL)))
