"""The gate before all handlers: it identifies callers, checks the mode that a request needs, and writes the audit log.

The gate checks modes only. Limits by tags are checked where the entities of a request are known
(`caraway.apps.server.access.limits`).
"""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from prometheus_client import Counter as Metric

from caraway.apps.server.access.admin_token import OPERATOR, AdminToken
from caraway.apps.server.access.provider import PREFIX, Provider
from caraway.apps.server.http.endpoints import Endpoint
from caraway.apps.server.http.messages import Headers, HttpResponse, Request, branch_of
from caraway.apps.server.watch import Watch
from caraway.errors import CarawayError, ForbiddenError, UnauthenticatedError, UnavailableError
from caraway.state.access import Access, AccessList, digest_of
from caraway.state.audit import Act, AuditLog
from caraway.state.permissions import ANYBODY, Caller

LOG = structlog.get_logger(__name__)

# Seconds between two reads of the tokens and roles from Postgres. A revoked token is refused after this time at most.
# If Postgres doesn't answer, the tokens and roles that were read last stay valid.
INTERVAL_S = 1.0
# When the server stops, it waits at most this many seconds for a read of the tokens and roles to end.
STOP_S = 3.0
# Refusals are counted by caller, action, branch, details and error until the next write to the audit log. At most this
# many different ones are counted, so that a flood of refused requests can't fill the memory. Further ones are counted
# only in the metric `REFUSED`.
MAX_REFUSALS = 1_000
# The two schemes of the header `Authorization`. Programs send a token as `bearer`. For a page, `PageHeaders` puts the
# session of the browser's cookie there as `session`. Pages accept only `session`, and all other endpoints only
# `bearer`.
BEARER, SESSION = "bearer", "session"
# The dots in a signed JWT; Caraway's tokens have none.
JWT_DOTS = 2
# The most callers with accounts of the identity provider that are cached. If there are more, the cache is cleared.
MAX_PEOPLE = 10_000
# The most admissions that are cached, and the most characters of the token and the branch of one. So the cache takes
# some 20 MB at most. If it is full, it is cleared.
MAX_ADMISSIONS, MAX_ADMISSION = 5_000, 4_096
NO_ROLE = (
    "account {account!r} is in no group that has a role here: whoever runs the server can give one of its groups a "
    "role (oidc.roles), and whoever runs the identity provider can put the account into such a group"
)
NOBODY_YET = (
    "requests need a token and there is none yet: `caraway tokens create NAME --role admin` makes the first one; "
    "server.tokens=false lets everybody do everything"
)
VALID_TOKENS = (
    "`caraway tokens create` makes one, and a stack that was started by `caraway up` has one in run/token of its data "
    "folder"
)
# The most characters of a branch, and of the details (a query string, a name or an error), in a line of the audit log.
# The request may contain longer ones.
LONGEST = 500

REFUSED = Metric("caraway_refused_counter", "Requests that were refused for want of a token or a right.", ["code"])


class Admission(NamedTuple):
    """The caller of a token, who may do what was asked for, and the time until which the token is valid."""

    caller: Caller
    until: float


class Gate:
    """Admits requests. Without `access` every caller may do everything."""

    def __init__(
        self,
        audit: AuditLog,
        access: Access | None,
        *,
        admin_token_file: Path | None = None,
        provider: Provider | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Write to `audit`; read tokens from `access`, and the operator's token from a file.

        The accounts of an identity `provider` are known besides those of `access`.

        Raises `ConfigurationError` if the file holds no token.
        """
        self._audit = audit
        self._access = access
        self._admin = None if access is None or admin_token_file is None else AdminToken(admin_token_file)
        self.provider = None if access is None else provider
        self._clock = clock
        # The callers with accounts of the identity provider, by account and groups, with the grants of their roles. The
        # cache is valid while the number of the access list is `_people_number`; each change of tokens or roles changes
        # that number.
        self._people: dict[tuple[str, tuple[str, ...]], Caller] = {}
        self._people_number = 0
        self._known: AccessList | None = None
        # The admitted callers, by the header with the token, the branch and the endpoint. After a change of tokens or
        # roles a new, empty dictionary replaces this one. A request that began before the change writes its result into
        # the old dictionary, so no later request reads an outdated admission.
        self._admissions: dict[tuple[str, str, str], Admission] = {}
        self._refusals: Counter[tuple[Act, str]] = Counter()
        self._counting = threading.Lock()
        self._reading = threading.Lock()
        self._catching_up = asyncio.Lock()
        self._reads = 0
        self._watch = Watch("access", self.refresh, INTERVAL_S)

    def start(self) -> None:
        """Start following changes of tokens and roles."""
        if self._access is not None:
            self._watch.start()

    def wake(self) -> None:
        """Look at once whether tokens or roles have changed."""
        self._watch.wake()

    def stop(self) -> None:
        """Stop following changes of tokens and roles, and write the refusals since the last write."""
        if self._access is not None:
            self._watch.stop(STOP_S)
        try:
            self._write_refusals()
        except UnavailableError as error:
            LOG.warning("the audit log lacks refusals", kinds=len(self._refusals), reason=str(error))

    def refresh(self) -> None:
        """Read changed tokens and roles, and write the refusals to the audit log.

        Raises:
            UnavailableError: Postgres doesn't answer; the tokens and roles that were read last stay valid.
        """
        if self._admin is not None and self._admin.refresh():
            self._admissions = {}
        if self._access is not None:
            self._read(self._access)
        self._write_refusals()

    def _read(self, access: Access) -> None:
        # Two threads may read the list at the same time. Without the lock, the slower one could replace a newer list by
        # an older one.
        with self._reading:
            before = self._known
            self._known = access.list_now(before)
            if self._known is not before:
                self._admissions = {}
        if before is None and not self._known.owners and self._admin is None:
            LOG.warning(NOBODY_YET)

    async def let_in(self, endpoint: Endpoint, headers: Headers) -> Caller:
        """Return the caller of a request as `admit` does, after a second look at what this server may not know yet.

        A session that another server has just begun is looked up in Postgres, and a JWT is verified by the identity
        provider's keys. Raises what `admit` does.
        """
        try:
            return self._admitted(endpoint, headers)
        except UnauthenticatedError:
            scheme, _, shown = (headers.get("authorization") or "").partition(" ")
        try:
            if endpoint.page is not None and shown:
                await self.catch_up()
            elif self.provider is not None and scheme.lower() == BEARER and shown.count(".") == JWT_DOTS:
                await self.provider.verify(shown.strip())
        except UnauthenticatedError:
            REFUSED.labels(UnauthenticatedError.code).inc()
            raise
        return self.admit(endpoint, headers)

    async def catch_up(self) -> None:
        """Read the tokens, roles and sessions as they are now; requests at a time share one read.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        if self._access is None:
            return
        # A read of the list that began before this call may miss the newest changes. So the call waits for a read that
        # begins from now on; another caller may make it.
        wanted = self._reads + 1
        async with self._catching_up:
            if self._reads < wanted:
                self._reads += 1
                await asyncio.to_thread(self._read, self._access)

    async def signed_in(self, headers: Headers) -> Caller:
        """Return the caller whose session the cookie of a request has. Raises `UnauthenticatedError` if none has."""
        try:
            return self._caller(headers, page=True).caller
        except UnauthenticatedError:
            await self.catch_up()
        return self._caller(headers, page=True).caller

    def admit(self, endpoint: Endpoint, headers: Headers) -> Caller:
        """Return the caller of a request to an endpoint.

        Raises:
            UnauthenticatedError: There is no token, or it isn't valid.
            ForbiddenError: The caller lacks the permission that the endpoint needs, on the branch.
            UnavailableError: The tokens haven't been read yet.
        """
        try:
            return self._admitted(endpoint, headers)
        except UnauthenticatedError:
            REFUSED.labels(UnauthenticatedError.code).inc()
            raise

    def _admitted(self, endpoint: Endpoint, headers: Headers) -> Caller:
        permission = endpoint.permission
        if self._access is None or permission.public:
            return ANYBODY
        shown, branch = headers.get("authorization") or "", branch_of(headers)
        admissions, key = self._admissions, (shown, branch, endpoint.target)
        found = admissions.get(key)
        if found is not None and self._clock() < found.until:
            return found.caller
        caller, until = self._caller(headers, page=endpoint.page is not None)
        if not caller.grants and caller.account.startswith(PREFIX):
            error = ForbiddenError(NO_ROLE.format(account=caller.account))
            self.refuse(caller, endpoint.target, branch, error)
            raise error
        if not permission.admits(caller, branch):
            where = f"branch {branch[:100]!r}" if permission.on_branch else permission.scope
            error = ForbiddenError(
                f"account {caller.account!r} lacks {permission.wanted} on {where} ({endpoint.target})"
            )
            self.refuse(caller, endpoint.target, branch, error)
            raise error
        if len(shown) + len(branch) <= MAX_ADMISSION:
            if len(admissions) >= MAX_ADMISSIONS:
                admissions.clear()
            admissions[key] = Admission(caller, until)
        return caller

    def refuse(self, caller: Caller, target: str, branch: str, error: CarawayError) -> None:
        """Note for the audit log that a caller was refused something."""
        REFUSED.labels(error.code).inc()
        act = _act(caller, target, branch, str(error))
        with self._counting:
            if len(self._refusals) < MAX_REFUSALS or (act, error.code) in self._refusals:
                self._refusals[act, error.code] += 1

    def knows(self, headers: Headers) -> bool:
        """Return whether a request to a public endpoint shows a valid token all the same, or nobody needs one."""
        try:
            return self._access is None or bool(self._caller(headers, page=False))
        except (UnauthenticatedError, UnavailableError):
            return False

    async def pass_on(
        self, endpoint: Endpoint, request: Request[Any, Any], answer: Callable[[], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        """Pass an admitted request on to its handler, and write it to the audit log if its endpoint is recorded."""
        if endpoint.recorded:
            return await self._recorded(endpoint.target, request, answer)
        try:
            return await answer()
        except ForbiddenError as error:
            self.refuse(request.caller, endpoint.target, request.branch, error)
            raise

    async def _recorded(
        self, target: str, request: Request[Any, Any], answer: Callable[[], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        # The log has a column of its own for the branch. So the details are the entity that the path names, and the
        # query string. The entity comes first, because the caller may put any text of any length into the query string,
        # which must not hide the name. The body isn't written to the log: it may hold a secret.
        detail = "?".join(filter(None, (_about(request.path), request.query_string)))
        act = _act(request.caller, target, request.branch, detail)
        number = await asyncio.to_thread(self._audit.begin, act)
        outcome = "failed"
        try:
            response = await answer()
            outcome = "done"
        except CarawayError as error:
            outcome = error.code
            raise
        finally:
            await self._ended(number, outcome)
        return response

    async def _ended(self, number: int, outcome: str) -> None:
        try:
            await asyncio.to_thread(self._audit.end, number, outcome)
        except UnavailableError as error:
            # The action is done or refused already, and the caller must get the answer even if Postgres doesn't respond
            # now. The line in the audit log then keeps the outcome "begun", which was written before the action.
            LOG.warning("the audit log has no outcome", id=number, outcome=outcome, reason=str(error))

    def _write_refusals(self) -> None:
        with self._counting:
            refusals, self._refusals = self._refusals, Counter()
        if not refusals:
            return
        try:
            self._audit.refusals(refusals)
        except BaseException:
            # The write failed, so its counts are merged with the newer ones for the next write. If there are too many
            # kinds, the older ones are kept.
            with self._counting:
                for kind, times in self._refusals.items():
                    if len(refusals) < MAX_REFUSALS or kind in refusals:
                        refusals[kind] += times
                self._refusals = refusals
            raise

    def _caller(self, headers: Headers, *, page: bool) -> Admission:
        scheme, _, shown = (headers.get("authorization") or "").partition(" ")
        if scheme.lower() != (SESSION if page else BEARER):
            raise UnauthenticatedError(f"a token is needed: Authorization: Bearer …; {VALID_TOKENS}")
        digest = digest_of(shown.strip())
        if page:
            return self._of_session(digest)
        person = None if self.provider is None else self.provider.known(digest)
        if person is None:
            return self._of_token(digest)
        return Admission(self.caller_of(person.account, person.groups), person.expires_at)

    def owner_of(self, token: str) -> Caller:
        """Return the caller whose token this is.

        Raises `UnauthenticatedError` if it isn't valid, and `UnavailableError` if the tokens haven't been read yet.
        """
        return self._of_token(digest_of(token)).caller

    def _of_token(self, digest: bytes) -> Admission:
        if self._admin is not None and self._admin.is_shown(digest):
            return Admission(OPERATOR, math.inf)
        owner = self._require_known().owners.get(digest)
        until = 0.0 if owner is None else _seconds(owner.expires_at)
        if owner is None or until <= self._clock():
            raise UnauthenticatedError(
                f"the token isn't valid: it is unknown, was revoked or has expired; {VALID_TOKENS}"
            )
        return Admission(owner.caller, until)

    def _of_session(self, digest: bytes) -> Admission:
        session = self._require_known().sessions.get(digest)
        until = 0.0 if session is None else _seconds(session.expires_at)
        if session is None or until <= self._clock():
            raise UnauthenticatedError("the session has ended; sign in again")
        if session.token_digest is not None:
            owner = self._of_token(session.token_digest)
            return Admission(owner.caller, min(until, owner.until))
        return Admission(self.caller_of(session.account, session.groups), until)

    def caller_of(self, account: str, groups: tuple[str, ...]) -> Caller:
        """Return the caller of an account of the identity provider, without grants if no group of it has a role.

        Raises:
            UnauthenticatedError: The server has no identity provider any more.
            UnavailableError: The roles haven't been read yet.
        """
        if self.provider is None:
            raise UnauthenticatedError("this server has no identity provider; sign in with a token")
        known = self._require_known()
        if self._people_number != known.number or len(self._people) > MAX_PEOPLE:
            self._people, self._people_number = {}, known.number
        caller = self._people.get((account, groups))
        if caller is None:
            roles = sorted(self.provider.roles_of(groups))
            grants = tuple(grant for role in roles for grant in known.roles.get(role, ()))
            caller = self._people[account, groups] = Caller(account=account, token_id=account, grants=grants)
        return caller

    def _require_known(self) -> AccessList:
        if self._known is None:
            raise UnavailableError(f"the server doesn't know the tokens yet: postgres {self._watch.problem()}")
        return self._known


def _seconds(at: datetime | None) -> float:
    return math.inf if at is None else at.timestamp()


def _act(caller: Caller, target: str, branch: str, detail: str) -> Act:
    return Act(
        account=caller.account,
        token_id=caller.token_id,
        action=target,
        branch=_writable(branch),
        detail=_writable(detail),
    )


def _about(path: str) -> str:
    """Return the entity that a path names: `secret/NAME` for `/api/v1/secret/NAME`, nothing if it names none."""
    _, _, about = path.partition("/v1/")
    kind, _, rest = about.partition("/")
    return f"{kind}/{rest.partition('/')[0]}" if kind in {"dataset", "secret", "dead_letters"} else ""


def _writable(text: str) -> str:
    """Return the text of a request as the audit log keeps it: shortened, without characters that Postgres refuses."""
    return text[:LONGEST].encode("utf-8", "replace").decode().replace("\0", "?")
