"""The handlers of the control plane: branches, history, ledger."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from caraway.control.history import differences
from caraway.errors import ForbiddenError, InvalidInputError, UnknownEntityError
from caraway.graph.branch_names import check_branch_name
from caraway.graph.wire import decode_graph
from caraway.ingest.table import json_type
from caraway.server.access.limits import AccessLimits, approval
from caraway.server.deployment import Deployment
from caraway.server.http.messages import HttpResponse, Request, json_response
from caraway.state import MAIN, AssetState, CommitRecord, LedgerEntry, Mode

COMMIT_ID = re.compile(r"[0-9a-f]{32}")
COMMITS_SHOWN = 50
CLOSED_SHOWN = 20


class BranchRoutes:
    """Answers requests about branches and about the state of commits."""

    def __init__(self, deployment: Deployment, limits: AccessLimits) -> None:
        """Work on `deployment`, for callers within their `limits`."""
        self._deployment = deployment
        self._limits = limits

    async def init(self, request: Request) -> HttpResponse:
        """Answer `POST /init`: make the branch in the header, empty or as a clone of `clone_from`."""
        self._deployment.graphs.require_served_graph()
        source = _text(await _object(request), "clone_from")
        name = check_branch_name(request.branch)
        if source is None:
            if not request.caller.may_all(Mode.WRITE_DEFINITION, name):
                raise ForbiddenError(
                    f"account {request.caller.account!r} has {Mode.WRITE_DEFINITION} on branch {name!r} for some tags "
                    "only; to make a branch it is needed for all"
                )
            await asyncio.to_thread(self._deployment.control.branches.create, name)
        else:
            # The branch doesn't exist yet; it will hold what its source holds, so the source is checked.
            caller = request.caller
            self._limits.check_branch(caller, (Mode.READ_DEFINITION, Mode.READ_DATA), check_branch_name(source), source)
            self._limits.check_branch(caller, (Mode.WRITE_DEFINITION, Mode.WRITE_DATA), name, source)
            await asyncio.to_thread(self._deployment.control.branches.clone, name, source)
        await asyncio.to_thread(self._deployment.graphs.reload)
        return json_response({"branch": name, "clone_from": source})

    async def delete(self, request: Request) -> HttpResponse:
        """Answer `POST /delete`: delete the branch in the header."""
        self._deployment.graphs.require_served_graph()
        if request.branch != MAIN:
            self._limits.check_branch(request.caller, (Mode.WRITE_DEFINITION,), request.branch, request.branch)
        await asyncio.to_thread(self._deployment.control.branches.delete, request.branch)
        await asyncio.to_thread(self._deployment.graphs.reload)
        return json_response({"branch": request.branch})

    async def list(self, request: Request) -> HttpResponse:
        """Answer `GET /branch/list`: all branches."""
        del request
        heads = await asyncio.to_thread(self._deployment.state.branch_heads)
        return json_response(
            {
                "branches": [
                    {
                        "name": branch.name,
                        "head": branch.head,
                        "serving": branch.serving,
                        "created_at": branch.created_at.isoformat(),
                    }
                    for branch in heads.branches
                ]
            }
        )

    async def history(self, request: Request) -> HttpResponse:
        """Answer `GET /branch/log`: the branch's commits, newest first; `?limit=` bounds how many."""
        limit = _number(request, "limit", COMMITS_SHOWN)
        records = await asyncio.to_thread(self._deployment.state.history, request.branch, limit=limit)
        return json_response({"branch": request.branch, "commits": [_commit(record) for record in records]})

    async def diff(self, request: Request) -> HttpResponse:
        """Answer `GET /branch/diff?from=&to=`: the differences between two commits."""
        asked = request.parameters()
        if "from" not in asked or "to" not in asked:
            raise InvalidInputError("from and to are expected in the query string: the ids of two commits")
        ends = [await self._readable(request, asked[end]) for end in ("from", "to")]
        before, after = [decode_graph(await asyncio.to_thread(self._deployment.state.graph, end)) for end in ends]
        found = differences(before, after)
        return json_response(
            {"from": ends[0], "to": ends[1], "added": found.added, "removed": found.removed, "changed": found.changed}
        )

    async def roll_back(self, request: Request) -> HttpResponse:
        """Answer `POST /branch/rollback`: commit again what the branch held at `commit_id`."""
        self._deployment.graphs.require_served_graph(request.branch)
        commit_id = _text(await _object(request), "commit_id")
        if commit_id is None:
            raise InvalidInputError("commit_id is missing; GET /branch/log lists the commits")
        preview = request.flag("preview", default=False)
        result = await asyncio.to_thread(
            self._deployment.control.commits.roll_back,
            await self._readable(request, commit_id),
            branch=request.branch,
            author=request.caller.account,
            preview=preview,
            approve=approval(request.caller, request.branch),
        )
        await asyncio.to_thread(self._deployment.graphs.reload)
        return json_response({"summary": [f"{line}\n" for line in result.summary], "commit_id": result.commit_id})

    async def _readable(self, request: Request, text: str) -> str:
        """Return the id of a commit that was made on a branch whose definitions the caller may read."""
        commit_id = _commit_id(text)
        caller = request.caller
        if not any(grant.branches is None and Mode.READ_DEFINITION in grant.modes for grant in caller.grants):
            record = await asyncio.to_thread(self._deployment.state.commit, commit_id)
            if not caller.may(Mode.READ_DEFINITION, record.branch):
                raise ForbiddenError(
                    f"account {caller.account!r} lacks {Mode.READ_DEFINITION} on branch {record.branch!r}, on which "
                    f"commit {commit_id} was made"
                )
        return commit_id

    async def ledger(self, request: Request) -> HttpResponse:
        """Answer `GET /ledger`: open actions with the reasons why they wait, and the last `?closed=` closed actions."""
        entries = await asyncio.to_thread(
            self._deployment.state.ledger, closed=_number(request, "closed", CLOSED_SHOWN)
        )
        assets = await asyncio.to_thread(self._deployment.state.assets)
        references = await asyncio.to_thread(self._deployment.state.references)
        return json_response(
            {
                "entries": [_entry(entry) for entry in entries],
                "assets": [
                    {
                        "id": asset.id,
                        "dataset": asset.dataset,
                        "state": asset.state,
                        "branches": sorted(references.get(asset.id, ())),
                    }
                    for asset in assets
                    if asset.state is not AssetState.GONE
                ],
            }
        )


def _commit_id(text: str) -> str:
    if COMMIT_ID.fullmatch(text) is None:
        raise UnknownEntityError(f"there is no commit {text[:100]!r}; GET /branch/log lists the commits")
    return text


async def _object(request: Request) -> Mapping[str, Any]:
    body = await request.json() if request.body else {}
    if not isinstance(body, dict):
        raise InvalidInputError(f"the body is {json_type(body)}; an object is expected")
    return body


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInputError(f"{name} is {json_type(value)}; a string is expected")
    return value


def _number(request: Request, name: str, default: int) -> int:
    text = request.parameters().get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 5:
        raise InvalidInputError(f"query parameter {name} is {text[:40]!r}; a number below 100000 is expected")
    return int(text)


def _commit(record: CommitRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "branch": record.branch,
        "parent": record.parent,
        "message": record.message,
        "author": record.author,
        "created_at": record.created_at.isoformat(),
        "fingerprint": record.fingerprint,
        "summary": list(record.summary),
    }


def _entry(entry: LedgerEntry) -> dict[str, object]:
    return {
        "asset": entry.asset_id,
        "asset_state": entry.asset_state,
        "dataset": entry.dataset,
        "deed": entry.action,
        "state": entry.state,
        "reason": entry.reason,
        "attempts": entry.attempts,
        "due_at": entry.due_at.isoformat(),
        "opened_at": entry.opened_at.isoformat(),
        "closed_at": None if entry.closed_at is None else entry.closed_at.isoformat(),
    }
