"""The tables of the first version, their first rows, and the triggers that notify listeners of changes.

No version has been released, so there are no older tables to upgrade: the tables are made as `caraway.state.tables` has
them. With the first release they become fixed here, and each later change of them is a further revision.
"""

import json

import sqlalchemy as sa
from alembic import op

from caraway.state.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ALL = [{"modes": ["read-definition", "write-definition", "read-data", "write-data"]}]
# The changes of tables that listeners (`caraway.state.listening`) are notified of.
NOTIFIED = {
    "branches": "INSERT OR UPDATE OR DELETE",
    "secrets": "INSERT OR UPDATE OR DELETE",
    "erasures": "INSERT",
    "access_changes": "UPDATE",
}
FUNCTION = """
    CREATE FUNCTION caraway_tell() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('caraway', TG_TABLE_NAME);
        RETURN NULL;
    END
    $$
"""


def upgrade() -> None:
    """Make the tables."""
    metadata.create_all(op.get_bind())
    op.execute("INSERT INTO branches (name) VALUES ('main')")
    op.execute("INSERT INTO access_changes VALUES (1)")
    # The first role; no account has it yet.
    op.execute(sa.text("INSERT INTO roles VALUES ('admin', CAST(:grants AS jsonb))").bindparams(grants=json.dumps(ALL)))
    op.execute(FUNCTION)
    for table, changes in NOTIFIED.items():
        op.execute(
            f"CREATE TRIGGER caraway_tell AFTER {changes} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION caraway_tell()"
        )
