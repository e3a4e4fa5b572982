"""Accounts, roles and tokens in Postgres. A token is shown once, when it is made; only its hash is kept."""

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError, InvalidInputError, UnknownEntityError
from caraway.state.audit import Act, write_act
from caraway.state.database import TIMEOUT_SECONDS, Store
from caraway.state.permissions import Caller, Grant, Mode
from caraway.state.tables import access_changes, account_roles, accounts, roles, sessions, tokens

# Programs that search code for secrets find a token by this prefix.
TOKEN_PREFIX = "caraway_"  # noqa: S105 (the prefix isn't secret)
SECRET_BYTES = 32
# One account may have at most this many sessions; a further sign-in ends the oldest one. So no account can fill the
# servers' memory.
MAX_SESSIONS = 20
NAME = re.compile(r"[A-Za-z0-9_.@+\-/]{1,200}")
DONE = "done"

T = TypeVar("T")
Kind = Literal["user", "service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as lists show it: all about it except its text and its hash."""

    id: str
    account: str
    kind: str
    roles: tuple[str, ...]
    note: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The account that may use a token, what its roles grant, and when the token expires."""

    caller: Caller
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session of a browser.

    Attributes:
        account: The account that has signed in.
        token_digest: The hash of the token that it has shown, with which the session ends; None if an identity provider
            knows it.
        groups: The groups that the provider named at the sign-in.
        expires_at: The end of the session.
    """

    account: str
    token_digest: bytes | None
    groups: tuple[str, ...]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AccessList:
    """All tokens that are valid and all sessions, by their hashes, and the grants of roles.

    `number` grows with each change of the list.
    """

    number: int
    owners: Mapping[bytes, TokenOwner]
    sessions: Mapping[bytes, Session] = field(default_factory=dict)
    roles: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)


def digest_of(token: str) -> bytes:
    """Return the hash of a token, which is all that is stored of it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Access(Store):
    """Reads and changes accounts, roles and tokens. Each change is one transaction with its line of the audit log."""

    def __init__(
        self, engine: sa.Engine, *, by: str, token_id: str = "", timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Work through `engine` (`database.connect`); the audit log names `by` as the author of each change.

        The log also has the id of the author's token, if the author has shown one.
        """
        super().__init__(engine, timeout_seconds=timeout_seconds)
        self._by = by
        self._token_id = token_id

    def acting_for(self, caller: Caller) -> "Access":
        """Return an `Access` whose changes the audit log has as those of a caller."""
        return Access(self._engine, by=caller.account, token_id=caller.token_id, timeout_seconds=self._timeout_seconds)

    def create_token(
        self,
        account: str,
        *,
        roles_given: Collection[str] = (),
        kind: Kind = "user",
        note: str = "",
        lasting: timedelta | None = None,
    ) -> tuple[str, str]:
        """Create a token for an account, and the account if it doesn't exist; return the token's id and the token.

        Raises:
            InvalidInputError: The account's name isn't possible, or the account is of the other kind.
            UnknownEntityError: There is no such role.
        """
        _check_name(account, "an account")
        # The id is chosen before the first attempt, so that a retry after an unnoticed success inserts no second token.
        token_id = secrets.token_hex(6)
        token = f"{TOKEN_PREFIX}{token_id}_{secrets.token_urlsafe(SECRET_BYTES)}"

        def write(connection: sa.Connection) -> None:
            connection.execute(insert(accounts).values(name=account, kind=kind).on_conflict_do_nothing())
            found = connection.execute(sa.select(accounts.c.kind).where(accounts.c.name == account)).scalar_one()
            if found != kind:
                raise InvalidInputError(f"account {account!r} is that of a {found}, not of a {kind}")
            for role in roles_given:
                _give(connection, account, role)
            expires_at = None if lasting is None else sa.func.clock_timestamp() + lasting
            row = {"id": token_id, "account": account, "digest": digest_of(token), "note": note}
            connection.execute(insert(tokens).values(**row, expires_at=expires_at).on_conflict_do_nothing())

        self._change("create token", f"{token_id} for {kind} {account}, roles {sorted(roles_given)}", write)
        return token_id, token

    def revoke_token(self, token_id: str) -> None:
        """End a token. Servers refuse it within a second or two; revoking a token again changes nothing.

        Raises `UnknownEntityError` if there is no such token.
        """

        def write(connection: sa.Connection) -> None:
            ended = sa.func.coalesce(tokens.c.revoked_at, sa.func.clock_timestamp())
            statement = sa.update(tokens).where(tokens.c.id == token_id).values(revoked_at=ended)
            if not connection.execute(statement).rowcount:
                raise UnknownEntityError(f"there is no token {token_id!r}; `caraway tokens list` shows them")

        self._change("revoke token", token_id, write)

    def begin_session(
        self, lasting: timedelta, *, token_digest: bytes | None = None, groups: Sequence[str] | None = None
    ) -> str:
        """Begin a session of the account for which this `Access` acts, and return its id, of which the hash is kept.

        Args:
            lasting: The time after which it ends.
            token_digest: The hash of the token that was shown; or else
            groups: The groups of the account, as its identity provider names them.
        """
        session, now = secrets.token_urlsafe(SECRET_BYTES), sa.func.clock_timestamp()
        row = {"digest": digest_of(session), "account": self._by, "token_digest": token_digest, "groups": groups}

        def write(connection: sa.Connection) -> None:
            made = insert(sessions).values(**row, created_at=now, expires_at=now + lasting)
            connection.execute(made.on_conflict_do_nothing())
            newest = sa.select(sessions.c.digest).where(sessions.c.account == self._by)
            newest = newest.order_by(sessions.c.created_at.desc()).limit(MAX_SESSIONS)
            too_many = (sessions.c.account == self._by) & sessions.c.digest.not_in(newest)
            connection.execute(sa.delete(sessions).where((sessions.c.expires_at <= now) | too_many))

        self._change("sign in", "console", write)
        return session

    def end_session(self, session: str) -> None:
        """End a session by its id."""
        ended = sa.delete(sessions).where(sessions.c.digest == digest_of(session))
        self._change("sign out", "console", lambda connection: connection.execute(ended))

    def end_sessions(self, account: str) -> int:
        """End all sessions of an account, and return how many they were."""
        ended = sa.delete(sessions).where(sessions.c.account == account)
        count = 0

        def write(connection: sa.Connection) -> None:
            nonlocal count
            count = connection.execute(ended).rowcount

        self._change("end sessions", account, write)
        return count

    def define_role(self, name: str, grants: Sequence[Grant]) -> None:
        """Set the grants of a role to exactly these; they apply at once to the accounts that have the role.

        Raises `InvalidInputError` if the name isn't possible.
        """
        _check_name(name, "a role")
        stored = [_stored(grant) for grant in grants]

        statement = insert(roles).values(name=name, grants=stored)
        statement = statement.on_conflict_do_update(index_elements=[roles.c.name], set_={"grants": stored})
        self._change("define role", f"{name}: {stored}", lambda connection: connection.execute(statement))

    def delete_role(self, name: str) -> None:
        """Delete a role that no account has.

        Raises `ConflictError` if an account has it, and `UnknownEntityError` if there is no such role.
        """

        def write(connection: sa.Connection) -> None:
            owners = connection.execute(
                sa.select(account_roles.c.account).where(account_roles.c.role == name).order_by(account_roles.c.account)
            ).scalars()
            if found := list(owners):
                raise ConflictError(f"role {name!r} can't be removed: {', '.join(found)} have it; take it from them")
            if not connection.execute(sa.delete(roles).where(roles.c.name == name)).rowcount:
                raise UnknownEntityError(f"there is no role {name!r}")

        self._change("delete role", name, write)

    def give_role(self, account: str, role: str) -> None:
        """Assign a role to an account. Raises `UnknownEntityError` if there is no such account or role."""

        def write(connection: sa.Connection) -> None:
            _require_account(connection, account)
            _give(connection, account, role)

        self._change("give role", f"{role} to {account}", write)

    def take_role(self, account: str, role: str) -> None:
        """Remove a role from an account. Raises `UnknownEntityError` if there is no such account."""

        def write(connection: sa.Connection) -> None:
            _require_account(connection, account)
            given = (account_roles.c.account == account, account_roles.c.role == role)
            connection.execute(sa.delete(account_roles).where(*given))

        self._change("take role", f"{role} from {account}", write)

    def tokens(self, *, newest: int | None = None, skip: int = 0) -> tuple[TokenRecord, ...]:
        """Return all tokens ever created, oldest first; or the `newest` ones behind the first `skip`, newest first."""
        given = (
            sa.select(sa.func.array_agg(account_roles.c.role))
            .where(account_roles.c.account == tokens.c.account)
            .scalar_subquery()
        )
        columns = [column for column in tokens.c if column is not tokens.c.digest]
        query = sa.select(*columns, accounts.c.kind, given.label("roles")).join_from(tokens, accounts)
        if newest is None:
            query = query.order_by(tokens.c.created_at, tokens.c.id)
        else:
            query = query.order_by(tokens.c.created_at.desc(), tokens.c.id.desc()).limit(newest).offset(skip)
        rows = self._read(lambda connection: connection.execute(query).mappings().all())
        return tuple(TokenRecord(**{**row, "roles": tuple(sorted(row["roles"] or ()))}) for row in rows)

    def roles(self) -> Mapping[str, tuple[Grant, ...]]:
        """Return the grants of each role."""
        return self._read(_roles)

    def list_now(self, known: AccessList | None = None) -> AccessList:
        """Return the valid tokens and sessions and what they allow; `known` itself if nothing has changed since."""

        def read(connection: sa.Connection) -> AccessList:
            number: int = connection.execute(sa.select(access_changes.c.number)).scalar_one()
            if known is not None and known.number == number:
                return known
            granted = _roles(connection)
            of: dict[str, list[Grant]] = {}
            for account, role in connection.execute(sa.select(account_roles.c.account, account_roles.c.role)):
                of.setdefault(account, []).extend(granted[role])
            valid = sa.select(tokens.c.id, tokens.c.account, tokens.c.digest, tokens.c.expires_at).where(
                tokens.c.revoked_at.is_(None)
            )
            owners = {
                bytes(row.digest): TokenOwner(
                    Caller(account=row.account, token_id=row.id, grants=tuple(of.get(row.account, ()))), row.expires_at
                )
                for row in connection.execute(valid)
            }
            running = sa.select(sessions).where(sessions.c.expires_at > sa.func.clock_timestamp())
            begun = {
                bytes(row.digest): Session(
                    account=row.account,
                    token_digest=None if row.token_digest is None else bytes(row.token_digest),
                    groups=tuple(row.groups or ()),
                    expires_at=row.expires_at,
                )
                for row in connection.execute(running)
            }
            return AccessList(number, owners, begun, granted)

        return self._read(read)

    def _change(self, action: str, detail: str, write: Callable[[sa.Connection], object]) -> None:
        act = Act(account=self._by, token_id=self._token_id, action=action, branch="", detail=detail)

        def change(connection: sa.Connection) -> None:
            # The lock on the only row of this table is held until the transaction ends, so changes come one after the
            # other. Servers read the number to notice that accounts, roles or tokens have changed since they last read
            # them.
            connection.execute(sa.update(access_changes).values(number=access_changes.c.number + 1))
            write(connection)
            write_act(connection, act, DONE)

        self._in_transaction(change, action)

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        def once() -> T:
            # With this option all queries of `read` see the same state, even if it is changed in between.
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            with self._engine.connect().execution_options(**options) as connection:
                return read(connection)

        return self._retry(once, "read who may do what")


def _check_name(name: str, what: str) -> None:
    if NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name[:100]!r} can't be the name of {what}; letters, digits, _ . @ + - and / are possible"
        )


def _require_account(connection: sa.Connection, account: str) -> None:
    if connection.execute(sa.select(accounts.c.name).where(accounts.c.name == account)).first() is None:
        raise UnknownEntityError(f"there is no account {account!r}; it is made with its first token")


def _give(connection: sa.Connection, account: str, role: str) -> None:
    there = list(connection.execute(sa.select(roles.c.name).order_by(roles.c.name)).scalars())
    if role not in there:
        raise UnknownEntityError(f"there is no role {role!r}; roles: {', '.join(there)}")
    connection.execute(insert(account_roles).values(account=account, role=role).on_conflict_do_nothing())


def _roles(connection: sa.Connection) -> Mapping[str, tuple[Grant, ...]]:
    rows = connection.execute(sa.select(roles.c.name, roles.c.grants).order_by(roles.c.name))
    return {row.name: tuple(map(_grant, row.grants)) for row in rows}


def _stored(grant: Grant) -> dict[str, Any]:
    stored: dict[str, Any] = {"modes": sorted(grant.modes)}
    if grant.tags is not None:
        stored["tags"] = sorted(grant.tags)
    if grant.without:
        stored["without"] = sorted(grant.without)
    if grant.branches is not None:
        stored["branches"] = sorted(grant.branches)
    return stored


def _grant(stored: Mapping[str, Any]) -> Grant:
    return Grant(
        modes=frozenset(map(Mode, stored["modes"])),
        tags=frozenset(stored["tags"]) if "tags" in stored else None,
        without=frozenset(stored.get("without", ())),
        branches=frozenset(stored["branches"]) if "branches" in stored else None,
    )
