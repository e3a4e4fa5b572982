"""The tables of access: accounts, their roles and tokens, and the audit log."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from caraway.state.tables import metadata

NOW = sa.func.clock_timestamp()

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.CheckConstraint("kind IN ('user', 'service')", name="accounts_kind_known"),
)

roles = sa.Table(
    "roles",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("grants", JSONB, nullable=False),
)

account_roles = sa.Table(
    "account_roles",
    metadata,
    sa.Column("account", sa.Text, sa.ForeignKey("accounts.name"), primary_key=True),
    sa.Column("role", sa.Text, sa.ForeignKey("roles.name"), primary_key=True),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, sa.ForeignKey("accounts.name"), nullable=False),
    # SHA-256 of the token. A token has 256 random bits, so a salt or a slow hash would protect nothing.
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("revoked_at", sa.DateTime(timezone=True)),
)

# One row, whose number grows with every change, so that servers notice a change by reading one number.
access_changes = sa.Table("access_changes", metadata, sa.Column("number", sa.BigInteger, primary_key=True))

audit = sa.Table(
    "audit",
    metadata,
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
