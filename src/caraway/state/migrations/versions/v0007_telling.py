"""Triggers that notify listeners when a table has changed (`caraway.state.listening`)."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TOLD = {
    "branches": "INSERT OR UPDATE OR DELETE",
    "secrets": "INSERT OR UPDATE OR DELETE",
    "erasures": "INSERT",
    "access_changes": "UPDATE",
}


def upgrade() -> None:
    """Upgrade the schema to this version."""
    op.execute(
        """
        CREATE FUNCTION caraway_tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('caraway', TG_TABLE_NAME);
            RETURN NULL;
        END
        $$
        """
    )
    for table, changes in TOLD.items():
        op.execute(
            f"CREATE TRIGGER caraway_tell AFTER {changes} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION caraway_tell()"
        )
