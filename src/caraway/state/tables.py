"""All tables in Postgres. The migrations make them; a test compares those in Postgres with these."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = sa.MetaData()
NOW = sa.func.clock_timestamp()

branches = sa.Table(
    "branches",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("head", sa.Text, sa.ForeignKey("commits.id", use_alter=True, name="branches_head_fkey")),
    sa.Column("serving", sa.Text, sa.ForeignKey("commits.id", use_alter=True, name="branches_serving_fkey")),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("parent", sa.Text, sa.ForeignKey("commits.id")),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("graph", sa.LargeBinary, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("summary", JSONB, nullable=False),
    # The generations of the commit's assets, by the asset's content (`Blueprint.content`). An asset without an entry
    # has its first generation.
    sa.Column("generations", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
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
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("progress", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
    # A job that a person has paused isn't run by any engine, whatever is desired, until a person lets it go on.
    sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.CheckConstraint("desired IN ('running', 'stopped')", name="jobs_desired_known"),
    sa.CheckConstraint("state IN ('pending', 'starting', 'running', 'failing', 'stopped')", name="jobs_state_known"),
)

assets = sa.Table(
    "assets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("requires", ARRAY(sa.Text), nullable=False),
    sa.Column("commit_id", sa.Text, sa.ForeignKey("commits.id"), nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    # The time at which the asset was found to have been computed from rows that are erased now. No commit may use it
    # any more, and it is destroyed as soon as no branch needs it.
    sa.Column("retired_at", sa.DateTime(timezone=True)),
    sa.UniqueConstraint("content", "generation", name="assets_content_generation"),
    sa.CheckConstraint("kind IN ('topic', 'job', 'index', 'ingest', 'sink')", name="assets_kind_known"),
    sa.CheckConstraint(
        "state IN ('planned', 'creating', 'backfilling', 'ready', 'failing', 'destroying', 'gone')",
        name="assets_state_known",
    ),
    # Assets that are gone stay in this table, and these two indexes keep them out of the way of commits and the ledger.
    sa.Index("assets_not_gone", "id", postgresql_where=sa.text("state <> 'gone'")),
    sa.Index("assets_requires", "requires", postgresql_using="gin", postgresql_where=sa.text("state <> 'gone'")),
    sa.Index("assets_retired", "id", postgresql_where=sa.text("retired_at IS NOT NULL")),
)

# The assets that a branch needs: for its head, and for the commit that it serves until the head is ready.
asset_references = sa.Table(
    "asset_references",
    metadata,
    sa.Column("branch", sa.Text, sa.ForeignKey("branches.name"), primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
    sa.Column("asset_id", sa.Text, sa.ForeignKey("assets.id"), primary_key=True),
    sa.CheckConstraint("role IN ('head', 'serving')", name="asset_references_role_known"),
    sa.Index("asset_references_asset_id", "asset_id"),
)

ledger = sa.Table(
    "ledger",
    metadata,
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
    sa.Index("ledger_open", "asset_id", unique=True, postgresql_where=sa.text("state = 'open'")),
    sa.Index("ledger_due", "due_at", "id", postgresql_where=sa.text("state = 'open'")),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
)

index_servers = sa.Table(
    "index_servers",
    metadata,
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
)

index_standings = sa.Table(
    "index_standings",
    metadata,
    sa.Column("shards", sa.Integer, primary_key=True),
    sa.Column("shard", sa.Integer, primary_key=True),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("level", sa.Boolean, nullable=False),
    sa.Column("frontier_us", sa.BigInteger),
)

source_positions = sa.Table(
    "source_positions",
    metadata,
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("position", JSONB, nullable=False),
    sa.Column("written", JSONB, nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)

# The offsets up to which the changes of a dataset are written to a sink (`caraway.dataplane.sinks.positions`).
sink_positions = sa.Table(
    "sink_positions",
    metadata,
    sa.Column("sink", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("written", JSONB, nullable=False),
    sa.Column("until", JSONB, nullable=False),
    sa.Column("epochs", JSONB, nullable=False, server_default="{}"),
    sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)

# Things that the readers of sources store beside their positions, such as the files that were read.
source_items = sa.Table(
    "source_items",
    metadata,
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("item", sa.Text, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)

# The tables of the archive, as the processes that write them report them after each write.
archive_tables = sa.Table(
    "archive_tables",
    metadata,
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("positions", JSONB, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("written_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)

# The topics that have lost records which somebody had read (`caraway.state.losses`).
topic_losses = sa.Table(
    "topic_losses",
    metadata,
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("follower", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("found_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)

# Offline queries (`caraway.offline.queries`), until some time after their end.
offline_queries = sa.Table(
    "offline_queries",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("workflow", sa.Text, nullable=False),
    sa.Column("request", JSONB, nullable=False),
    sa.Column("cuts", JSONB(none_as_null=True)),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("cancelled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("rows", sa.BigInteger),
    sa.Column("parts", JSONB, nullable=False, server_default="[]"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", sa.Text),
    sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.Index("offline_queries_branch", "branch", "asked_at"),
)

# The positions up to which watches have looked at topics (`caraway.state.watched`): those of served features by the id
# of their topic, and those of a dataset by the name of its check.
watch_positions = sa.Table(
    "watch_positions",
    metadata,
    sa.Column("watch", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("positions", JSONB, nullable=False),
    sa.Column("epochs", JSONB, nullable=False, server_default="{}"),
    sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
)

# The findings of the skew watch (`caraway.state.skew`).
skew_counts = sa.Table(
    "skew_counts",
    metadata,
    sa.Column("branch", sa.Text, primary_key=True),
    sa.Column("commit_id", sa.Text, primary_key=True),
    sa.Column("feature", sa.Text, primary_key=True),
    sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("finding", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Index("skew_counts_hour", "hour"),
)

# The numbers of findings since the beginning. They never decrease, as counters of metrics must not.
skew_totals = sa.Table(
    "skew_totals",
    metadata,
    sa.Column("branch", sa.Text, primary_key=True),
    sa.Column("feature", sa.Text, primary_key=True),
    sa.Column("finding", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
)

# A few values of each finding. The position is that of the row among served features, by which an erasure finds it.
skew_samples = sa.Table(
    "skew_samples",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("feature", sa.Text, nullable=False),
    sa.Column("finding", sa.Text, nullable=False),
    sa.Column("served_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("served", sa.Text, nullable=False),
    sa.Column("recomputed", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("offset", sa.BigInteger, nullable=False),
    sa.Column("row", sa.BigInteger, nullable=False),
    sa.Index("skew_samples_feature", "branch", "feature", "finding", "id"),
    sa.Index("skew_samples_position", "offset", "partition", "row"),
)

# The profiles of columns by the hour (`caraway.state.profiles`), encoded as bytes by `caraway.compute.profiles.tables`.
# A column is a feature that a branch served, or a field of the rows of a check.
drift_profiles = sa.Table(
    "drift_profiles",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("column", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("profile", sa.LargeBinary, nullable=False),
    sa.Index("drift_profiles_hour", "hour"),
)

# The profiles with which columns are compared, such as those of a training set.
drift_references = sa.Table(
    "drift_references",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("column", sa.Text, primary_key=True),
    sa.Column("profile", sa.LargeBinary, nullable=False),
    sa.Column("set_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("set_by", sa.Text, nullable=False),
)

# The distances that were found last, for metrics.
drift_findings = sa.Table(
    "drift_findings",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("column", sa.Text, primary_key=True),
    sa.Column("distance", sa.Text, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("drifted", sa.Boolean, nullable=False),
)

# The counts of expectations (`caraway.offline.monitoring.quality`) by windows of event time: by the name of a dataset's
# check and the number of the expectation in it.
quality_counts = sa.Table(
    "quality_counts",
    metadata,
    sa.Column("check_id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("start", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("evaluated", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
)

# The counts of an expectation over all rows, and the status that was last found, with the time since when it holds.
# Also the times of the last violation and of the last notification.
quality_totals = sa.Table(
    "quality_totals",
    metadata,
    sa.Column("check_id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("evaluated", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text),
    sa.Column("changed_at", sa.DateTime(timezone=True)),
    sa.Column("violated_at", sa.DateTime(timezone=True)),
    sa.Column("notified_at", sa.DateTime(timezone=True)),
)

# A few rows that failed: the Kafka key of their record, and their columns in stored form as MessagePack.
quality_samples = sa.Table(
    "quality_samples",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("check_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("row", sa.LargeBinary, nullable=False),
    sa.Index("quality_samples_check", "check_id", "number", "id"),
)

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

# The sessions of browsers. A session that was begun with a token ends with the token. A session of a person whom an
# identity provider knows has the groups that the provider named at the sign-in.
sessions = sa.Table(
    "sessions",
    metadata,
    # SHA-256 of the random id, which the cookie has.
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    # The operator and the people of a provider have no row in `accounts`, so this is no foreign key.
    sa.Column("account", sa.Text, nullable=False, index=True),
    sa.Column("token_digest", sa.LargeBinary),
    sa.Column("groups", JSONB(none_as_null=True)),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("(token_digest IS NULL) <> (groups IS NULL)", name="sessions_begun_by_one"),
)

# This table has one row, whose number grows with every change of accounts, roles, tokens and sessions. So a server that
# keeps those in memory notices a change by reading one number, and then reads them anew.
access_changes = sa.Table(
    "access_changes", metadata, sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False)
)

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

# A row for each key and topic. The key is stored as a hash only.
erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    # The dataset with the hash of its definition (`caraway.graph.plan.model.definition_of`). The key is erased in all
    # topics of the definition, also in those that are made later.
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("columns", ARRAY(sa.Text), nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("token_id", sa.Text, nullable=False),
    sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    # Null as long as a topic of the definition that some branch needs may lack the record of the erasure.
    sa.Column("recorded_at", sa.DateTime(timezone=True)),
    # False if a column isn't a key of the dataset. An index of the dataset itself can't find entries by such a column,
    # so it is built anew.
    sa.Column("by_key", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("downstream", sa.Boolean, nullable=False, server_default=sa.false()),
    # Only if `downstream`: the offsets, by partition, behind which the topic has no erased row.
    sa.Column("cut", JSONB(none_as_null=True)),
    sa.UniqueConstraint("topic", "columns", "key_id", "digest", name="erasures_once"),
    sa.Index("erasures_of_definition", "definition"),
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

replays = sa.Table(
    "dead_letter_replays",
    metadata,
    sa.Column("letter", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    # `begun_at` is the time of the first attempt: a later attempt looks in the topic, from this time on, for a row that
    # an earlier one wrote without marking it as done. `tried_at` is the time of the newest attempt.
    sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("tried_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("done_at", sa.DateTime(timezone=True)),
)

sink_replays = sa.Table(
    "sink_replays",
    metadata,
    sa.Column("sink", sa.Text, primary_key=True),
    # The place of the change on the dataset's topic: a change may have several dead letters.
    sa.Column("place", sa.Text, primary_key=True),
    sa.Column("letter", sa.Text, nullable=False),
    # The numbers of a sink grow in the order in which they become visible, so a server that asks for those after the
    # last one that it has seen misses none.
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Index("sink_replays_in_order", "sink", "number"),
)
