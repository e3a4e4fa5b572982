"""Tests of changes of rights: each is in the audit log, and none happens without its line there."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.permissions import Grant, Mode
from caraway.state.tables import access_changes, account_roles, accounts, roles, tokens

READER = [Grant(modes=frozenset({Mode.READ_DATA}))]
# As a full disk or a permission that was taken away has it: nothing is added to the audit log any more.
LOST = """
    CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the log is lost'; END $$;
    CREATE TRIGGER lost BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION lost();
"""


@pytest.fixture
def access(engine: sa.Engine) -> Access:
    return Access(engine, by="root@example.com", token_id="t1")


CHANGES: dict[str, Callable[[Access, str], object]] = {
    "create token": lambda access, _: access.create_token("new", roles_given=["reader"]),
    "revoke token": lambda access, token_id: access.revoke_token(token_id),
    "define role": lambda access, _: access.define_role("reader", [Grant(modes=frozenset(Mode))]),
    "delete role": lambda access, _: access.delete_role("unused"),
    "give role": lambda access, _: access.give_role("ada", "admin"),
    "take role": lambda access, _: access.take_role("ada", "reader"),
}


def rights(engine: sa.Engine) -> list[object]:
    """Return all that says who may do what."""
    with engine.begin() as connection:
        tables = (accounts, roles, account_roles, tokens, access_changes)
        return [sorted(map(str, connection.execute(sa.select(table)))) for table in tables]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_rights_happens_with_its_line_of_the_audit_log_or_not_at_all(
    engine: sa.Engine, access: Access, change: str
) -> None:
    access.define_role("reader", READER)
    access.define_role("unused", READER)
    token_id, _ = access.create_token("ada", roles_given=["reader"])
    CHANGES[change](access, token_id)
    newest = AuditLog(engine).newest(1)[0]
    assert (newest.act.account, newest.act.token_id, newest.act.action) == ("root@example.com", "t1", change)
    access.define_role("reader", READER)
    access.define_role("unused", READER)
    access.give_role("ada", "reader")
    access.take_role("ada", "admin")
    token_id, _ = access.create_token("ada")
    with engine.begin() as connection:
        connection.execute(sa.text(LOST))
    before = rights(engine)
    with pytest.raises(sa.exc.DBAPIError, match="the log is lost"):
        CHANGES[change](access, token_id)
    assert rights(engine) == before
