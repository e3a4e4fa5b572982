"""The handlers of the control plane: branches, history, ledger."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from caraway.apps.server.access.limits import Tags, approval, readable
from caraway.apps.server.control.summary import differences
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import ForbiddenError
from caraway.graph.branch_names import check_branch_name
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.allocation import AssetState
from caraway.state.model import MAIN, BranchRecord, CommitRecord, LedgerEntry
from caraway.state.permissions import Caller, Mode

COMMITS_SHOWN = 50
CLOSED_SHOWN = 20
# The most pairs of commits whose differences are cached. A comparison of two large commits takes a second or more.
MAX_DIFFERENCES = 100
Number = Annotated[int, Meta(ge=0, lt=100_000)]
CommitId = Annotated[
    str, Meta(description="a branch, or the id of a commit (GET /branch/log lists them) or its beginning")
]


class InitBody(Struct):
    """The branch that a new branch holds a copy of; none for an empty branch."""

    clone_from: Annotated[str | None, Meta(description="the name of a branch")] = None


class RollbackBody(Struct):
    """The commit whose definitions the branch gets again."""

    commit_id: CommitId


class RollbackParameters(Struct):
    """Options of a rollback."""

    preview: Annotated[bool, Meta(description="true, to only show what would happen, or false")] = False


class PromoteBody(Struct):
    """The branch whose definitions the branch in the header gets."""

    source: Annotated[str, Meta(description="the name of a branch")]
    message: Annotated[str, Meta(description="a description of the commit")] = ""


class PromoteParameters(Struct):
    """Options of a promotion."""

    preview: Annotated[bool, Meta(description="true, to only show what would happen, or false")] = False
    incremental: Annotated[bool, Meta(description="true, to keep what the other branch doesn't hold")] = False


class LogParameters(Struct):
    """The greatest number of commits in the answer."""

    limit: Annotated[Number, Meta(description="the number of commits to show, below 100,000")] = COMMITS_SHOWN


class DiffParameters(Struct):
    """The ids of two commits."""

    before: CommitId = field(name="from")
    after: CommitId = field(name="to")


class LedgerParameters(Struct):
    """The greatest number of closed actions in the answer."""

    closed: Annotated[Number, Meta(description="the number of closed actions to show, below 100,000")] = CLOSED_SHOWN


@dataclass(frozen=True, slots=True)
class Branches:
    """All branches."""

    branches: tuple[BranchRecord, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The newest commits of a branch."""

    branch: str
    commits: tuple[CommitRecord, ...]


async def init_branch(context: ServerContext, request: Request[InitBody]) -> HttpResponse:
    """Make the branch in the header, empty or as a clone of `clone_from`."""
    context.deployment.graphs.require_served_graph()
    source = (await request.read()).clone_from
    name = check_branch_name(request.branch)
    if source is None:
        if not request.caller.may_all(Mode.WRITE_DEFINITION, name):
            raise ForbiddenError(
                f"account {request.caller.account!r} has {Mode.WRITE_DEFINITION} on branch {name!r} for some tags "
                "only; to make a branch it is needed for all"
            )
        await asyncio.to_thread(context.deployment.control.branches.create, name)
    else:
        # The new branch will hold what its source holds. So the caller must be allowed to read all of that on the
        # source, and to write entities with the same tags on the new branch, which has no graph to check yet.
        caller, graphs = request.caller, context.deployment.graphs
        await asyncio.to_thread(graphs.reload)
        checked = graphs.require_needed().of(check_branch_name(source))
        context.limits.check_branch(caller, (Mode.READ_DEFINITION, Mode.READ_DATA), source, checked)
        context.limits.check_branch(caller, (Mode.WRITE_DEFINITION, Mode.WRITE_DATA), name, checked)
        await asyncio.to_thread(context.deployment.control.branches.clone, name, source, checked)
    await asyncio.to_thread(context.deployment.graphs.reload)
    return json_response({"branch": name, "clone_from": source})


async def delete_branch(context: ServerContext, request: Request) -> HttpResponse:
    """Delete the branch in the header."""
    context.deployment.graphs.require_served_graph()
    if request.branch != MAIN:
        held = context.deployment.graphs.require_needed().of(request.branch)
        context.limits.check_branch(request.caller, (Mode.WRITE_DEFINITION,), request.branch, held)
    await asyncio.to_thread(context.deployment.control.branches.delete, request.branch)
    await asyncio.to_thread(context.deployment.graphs.reload)
    return json_response({"branch": request.branch})


async def list_branches(context: ServerContext, request: Request) -> HttpResponse:
    """Return all branches."""
    heads = await asyncio.to_thread(context.deployment.state.branch_heads)
    return json_response(Branches(heads.branches))


async def branch_log(context: ServerContext, request: Request[Nothing, LogParameters]) -> HttpResponse:
    """Return the commits of the branch, newest first.

    Their summaries are empty for callers who may read only some definitions of the branch.
    """
    limit = request.parameters().limit
    records = await asyncio.to_thread(context.deployment.state.history, request.branch, limit=limit)
    if not request.caller.may_all(Mode.READ_DEFINITION, request.branch):
        # The lines of a summary name all that a commit has changed, so a caller who may read only some definitions gets
        # no lines.
        records = tuple(replace(record, summary=()) for record in records)
    return json_response(History(request.branch, records))


async def branch_diff(context: ServerContext, request: Request[Nothing, DiffParameters]) -> HttpResponse:
    """Return the differences between two commits, as far as the caller may read their definitions."""
    asked = request.parameters()
    ends = await _readable(context, request, asked.before), await _readable(context, request, asked.after)
    every = all([await _may_read_all(context, request, end) for end in ends])
    # A commit never changes, so the differences between two commits can be cached for any time.
    key = (*ends, None if every else request.caller.grants)
    found = context.differences.get(key)
    if found is None:
        found = await asyncio.to_thread(_differences, context, *ends, None if every else request.caller)
        if len(context.differences) >= MAX_DIFFERENCES:
            context.differences.clear()
        context.differences[key] = found
    return json_response({"from": ends[0], "to": ends[1], **found})


def _differences(context: ServerContext, one: str, other: str, caller: Caller | None) -> dict[str, object]:
    """Return the differences between two commits, as far as a caller may read their definitions; None: all."""
    state = context.deployment.state
    before, after = decode_graph(state.graph(one)), decode_graph(state.graph(other))
    if caller is None:
        return differences(before, after)
    # Tags of both commits count. An entity with a private tag in only one of them is hidden in both, since a difference
    # would name it otherwise.
    tags = Tags.of(before).merged(Tags.of(after))
    return differences(
        readable(before, tags, caller, state.commit(one).branch),
        readable(after, tags, caller, state.commit(other).branch),
    )


async def roll_back(context: ServerContext, request: Request[RollbackBody, RollbackParameters]) -> HttpResponse:
    """Commit again what the branch held at `commit_id`."""
    context.deployment.graphs.require_served_graph(request.branch)
    commit_id = (await request.read()).commit_id
    result = await asyncio.to_thread(
        context.deployment.control.commits.roll_back,
        await _usable(context, request, commit_id),
        branch=request.branch,
        author=request.caller.account,
        preview=request.parameters().preview,
        approve=approval(request.caller, request.branch),
        share=partial(context.sharing.check_commit, request.caller, request.branch),
    )
    await asyncio.to_thread(context.deployment.graphs.reload)
    return json_response({"summary": [f"{line}\n" for line in result.summary], "commit_id": result.commit_id})


async def promote(context: ServerContext, request: Request[PromoteBody, PromoteParameters]) -> HttpResponse:
    """Commit the definitions of the branch `source` to the branch in the header, under the rules of a commit."""
    graphs = context.deployment.graphs
    graphs.require_served_graph(request.branch)
    body, options = await request.read(), request.parameters()
    source = check_branch_name(body.source)
    await asyncio.to_thread(graphs.reload)
    # The commit that is checked is the one that is promoted, even if the source gets another one meanwhile.
    needed = graphs.require_needed()
    context.limits.check_branch(request.caller, (Mode.READ_DEFINITION,), source, needed.of(source))
    result = await asyncio.to_thread(
        context.deployment.control.commits.commit,
        CommitRequest(
            message=body.message or f"promote {source}",
            graph=needed.head_of(source).graph,
            preview=options.preview,
            incremental=options.incremental,
        ),
        branch=request.branch,
        author=request.caller.account,
        approve=approval(request.caller, request.branch),
        share=partial(context.sharing.check_commit, request.caller, request.branch),
    )
    await asyncio.to_thread(graphs.reload)
    return json_response({"summary": [f"{line}\n" for line in result.summary], "commit_id": result.commit_id})


async def _readable(context: ServerContext, request: Request[Any, Any], text: str) -> str:
    """Return the id of a commit that a text names; raise if the caller may not read the definitions of its branch."""
    text = await asyncio.to_thread(context.deployment.state.commit_id, text)
    caller = request.caller
    if not any(grant.branches is None and Mode.READ_DEFINITION in grant.modes for grant in caller.grants):
        record = await asyncio.to_thread(context.deployment.state.commit, text)
        if not caller.may(Mode.READ_DEFINITION, record.branch):
            raise ForbiddenError(
                f"account {caller.account!r} lacks {Mode.READ_DEFINITION} on branch {record.branch!r}, on which "
                f"commit {text} was made"
            )
    return text


async def _usable(context: ServerContext, request: Request[Any, Any], text: str) -> str:
    """Return the id of a commit to which the caller may roll the branch back; raise if it isn't.

    A commit of another branch brings the data of that branch along, as a clone does.
    """
    commit_id, state = await _readable(context, request, text), context.deployment.state
    made_on = (await asyncio.to_thread(state.commit, commit_id)).branch
    if made_on != request.branch:
        graph = decode_graph(await asyncio.to_thread(state.graph, commit_id))
        context.sharing.check_taken(request.caller, made_on, graph)
    return commit_id


async def _may_read_all(context: ServerContext, request: Request[Any, Any], commit_id: str) -> bool:
    """Return whether the caller may read all definitions of the branch on which a commit was made."""
    if request.caller.may_everywhere(Mode.READ_DEFINITION):
        return True
    record = await asyncio.to_thread(context.deployment.state.commit, commit_id)
    return request.caller.may_all(Mode.READ_DEFINITION, record.branch)


async def ledger(context: ServerContext, request: Request[Nothing, LedgerParameters]) -> HttpResponse:
    """Return the open actions with the reasons why they wait, and the last closed ones, as far as they may be seen."""
    entries = await asyncio.to_thread(context.deployment.state.ledger, closed=request.parameters().closed)
    assets = await asyncio.to_thread(context.deployment.state.assets)
    references = await asyncio.to_thread(context.deployment.state.references)
    is_shown = context.limits.shown_assets(request.caller, lambda: references)
    return json_response(
        {
            "entries": [_entry(entry) for entry in entries if is_shown(entry.dataset, entry.asset_id)],
            "assets": [
                {
                    "id": asset.id,
                    "dataset": asset.dataset,
                    "state": asset.state,
                    "branches": sorted(references.get(asset.id, ())),
                }
                for asset in assets
                if asset.state is not AssetState.GONE and is_shown(asset.dataset, asset.id)
            ],
        }
    )


def _entry(entry: LedgerEntry) -> dict[str, object]:
    return {
        "asset": entry.asset_id,
        "asset_state": entry.asset_state,
        "dataset": entry.dataset,
        "deed": entry.action,
        "state": entry.state,
        "reason": entry.reason,
        "attempts": entry.attempts,
        "due_at": entry.due_at,
        "opened_at": entry.opened_at,
        "closed_at": entry.closed_at,
    }
