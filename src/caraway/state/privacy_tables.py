"""The tables of secrets and of erased keys."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from caraway.state.tables import metadata

NOW = sa.func.clock_timestamp()

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # The name of the key that seals the secret; the key itself is in a file.
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("updated_by", sa.Text, nullable=False),
)

# A row for each key and topic. The key is stored as a hash only.
erasures = sa.Table(
    "erasures",
    metadata,
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

# The places that have removed a key: the indexes of servers, the archive.
erasure_places = sa.Table(
    "erasure_places",
    metadata,
    sa.Column("erasure_id", sa.BigInteger, sa.ForeignKey("erasures.id"), primary_key=True),
    sa.Column("place", sa.Text, primary_key=True),
    sa.Column("done_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)
