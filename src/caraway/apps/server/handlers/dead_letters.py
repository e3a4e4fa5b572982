"""The handlers of dead letters: list them, show one, and send the row of one again.

A caller sees those of the branch's datasets that they may read: rows that an endpoint or a source refused for a dataset
of the branch, rows at which a step of one of its jobs failed, and changes that a sink refused. Rows of erased keys
aren't shown to anybody.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import require
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.server.served_graph import ServedGraph
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.erased_letters import topics_of_step, values_of
from caraway.dataplane.ingest.requests import RequestKey
from caraway.dataplane.ingest.table import table
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.letter_reader import Letter, parse_id
from caraway.errors import CarawayError, ConflictError, ForbiddenError, InvalidInputError, UnknownEntityError
from caraway.graph.trees import datasets_read
from caraway.state.permissions import Mode
from caraway.state.sink_replays import SENT

# The number of dead letters in an answer without the parameter `limit`, and the greatest value of `limit`.
SHOWN, MAX_SHOWN = 50, 500
# The most dead letters that are read from Kafka for one answer, since a caller may be allowed to see few of many. The
# answer's `next` leads to the dead letters that are older than the last one that this answer considered.
SCANNED = 2_000
# The seconds that an answer waits at most for a sink to send a change again, and the seconds between two checks.
OUTCOME_S, OUTCOME_POLL_S = 10.0, 0.1
# The most characters of a reason in the list; the answer about a single dead letter has all of them.
REASON = 300

# The members of a dead letter that the answer about it leaves out, since only the server itself needs them.
HIDDEN = frozenset({"topic", "change", "sink_id"})

Json = dict[str, object]


class DeadLettersParameters(Struct):
    """The dead letters that are wanted."""

    dataset: Annotated[str | None, Meta(description="the name of a dataset, to show its dead letters only")] = None
    source: Annotated[str | None, Meta(description="the name of a webhook or another system, or of one source")] = None
    since: Annotated[datetime | None, Meta(description="only those written at this time or later")] = None
    limit: Annotated[int, Meta(ge=1, le=MAX_SHOWN, description=f"a number to show, from 1 to {MAX_SHOWN}")] = SHOWN
    before: Annotated[str, Meta(description="the `next` of an earlier answer")] = ""


class Replay(Struct):
    """How a dead letter is sent again."""

    row: Annotated[
        dict[str, Any] | None, Meta(description="the repaired row, which is sent in place of the refused one")
    ] = None


async def dead_letters(context: ServerContext, request: Request[Nothing, DeadLettersParameters]) -> HttpResponse:
    """Return the newest rows that were refused or failed, without their values."""
    asked = request.parameters()
    found, before = await _newest(context, request, asked, asked.limit)
    older = await asyncio.to_thread(context.deployment.topics.letters.newest, before, 1)
    again = await asyncio.to_thread(context.deployment.topics.replays.of, [dead_letter.id for dead_letter in found])
    return json_response(
        {
            "branch": request.branch,
            "dead_letters": [
                {**_summary(dead_letter), "replayed_at": again.get(dead_letter.id)} for dead_letter in found
            ],
            "next": ",".join(f"{partition}-{offset}" for partition, offset in before.items()) if older else None,
        }
    )


async def waiting(context: ServerContext, request: Request[Nothing, DeadLettersParameters]) -> HttpResponse:
    """Return those of the newest dead letters that weren't replayed."""
    found, _ = await _newest(context, request, request.parameters(), SCANNED)
    again = await asyncio.to_thread(context.deployment.topics.replays.of, [dead_letter.id for dead_letter in found])
    return json_response([_summary(dead_letter) for dead_letter in found if dead_letter.id not in again])


async def _newest(
    context: ServerContext, request: Request[Any, Any], asked: DeadLettersParameters, limit: int
) -> tuple[list[Letter], dict[int, int]]:
    """Return the newest dead letters that are asked for, and where older ones begin."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    before = _cursor(asked.before)
    topics = await asyncio.to_thread(context.deployment.state.past_topics, request.branch)
    dead_letters = await asyncio.to_thread(context.deployment.topics.letters.newest, before, SCANNED)
    found: list[Letter] = []
    for dead_letter in dead_letters:
        if _is_asked(dead_letter, asked) and _is_seen(context, dead_letter, served, topics, request):
            # Dead letters that nobody here may see are passed, so that older ones are promised only if there are some.
            if len(found) == limit:
                break
            found.append(dead_letter)
        before[dead_letter.partition] = dead_letter.offset
    return found, before


async def dead_letter(context: ServerContext, request: Request, name: str) -> HttpResponse:
    """Return a dead letter with its row, by its id such as 0-17."""
    dead_letter = await _seen(context, name, request, Mode.READ_DATA)
    again = await asyncio.to_thread(context.deployment.topics.replays.of, [dead_letter.id])
    shown = {name: value for name, value in dead_letter.body.items() if name not in HIDDEN}
    return json_response({"id": dead_letter.id, **shown, "replayed_at": again.get(dead_letter.id)})


async def replay(context: ServerContext, request: Request[Replay], name: str) -> HttpResponse:
    """Send the row of a dead letter again to the dataset that refused it, as it is or repaired, once.

    Raises:
        InvalidInputError: The row can't be sent, or the dataset would refuse it again.
        ConflictError: The dataset is being rebuilt, and the rebuilt one would miss the row.
    """
    dead_letter = await _seen(context, name, request, Mode.WRITE_DATA)
    served = context.deployment.graphs.require_served_graph(request.branch)
    repaired = (await request.read()).row
    row = dead_letter.body.get("row") if repaired is None else repaired
    endpoint = _endpoint(dead_letter, served)
    topics = [] if endpoint is None else [target.topic for target in endpoint.targets]
    topics += [sink.topic.name for sink in served.plan.sinks if sink.sink_id == dead_letter.body.get("sink_id")]
    written = [(str(dead_letter.body["dataset"]), topic) for topic in topics]
    context.sharing.check_written(request.caller, request.branch, written)
    if "sink" in dead_letter.body:
        if repaired is not None:
            raise InvalidInputError(
                f"{dead_letter.id} is of a change that a sink's system refused; it can't be repaired, since the sink "
                "writes what the dataset has: leave the row out"
            )
        return await _replay_change(context, request, dead_letter, served)
    if "follower" in dead_letter.body:
        raise InvalidInputError(
            f"dead letter {dead_letter.id} is of a record that is on its topic, and that the "
            f"{dead_letter.body['follower']} couldn't read or apply: an index that is built anew reads it again"
        )
    if endpoint is None:
        raise InvalidInputError(
            f"dead letter {dead_letter.id} is of a pipeline's step, whose row isn't one that was logged: "
            "commit a pipeline that takes it, which computes all rows anew"
        )
    if not isinstance(row, dict):
        raise InvalidInputError(
            f"dead letter {dead_letter.id} has only the head of its row, or a row that is no object; send the whole "
            "repaired row with the replay"
        )
    dataset = dead_letter.body["dataset"]
    if dataset in served.rebuilding:
        raise ConflictError(
            f"{dataset} is being rebuilt by the branch's newest commit, which would miss the row of dead letter "
            f"{dead_letter.id}: replay it when that commit is served (`caraway wait --commit` waits for it)"
        )
    _check_fits(dead_letter, endpoint.targets[0], row)
    claim = await asyncio.to_thread(context.deployment.topics.replays.claim, dead_letter.id, request.caller.account)
    if claim.done_at is None:
        elapsed = None if claim.elapsed is None else int(claim.elapsed.total_seconds() * 1000)
        digest = hashlib.blake2b(orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS), digest_size=16).digest()
        # `RequestKey.parse` isn't used here, since it allows at most a day since the first attempt, and a replay may
        # come later. The keys that `parse` makes begin with a hash of the account and a colon, so no request can have
        # this key.
        key = RequestKey(f"dead-letter-{dead_letter.id}", elapsed, digest, request.caller.account)
        await context.ingest.put(endpoint, [row], key)
        await asyncio.to_thread(context.deployment.topics.replays.done, dead_letter.id)
    return json_response({"id": dead_letter.id, "dataset": dataset, "already": claim.done_at is not None})


async def _replay_change(
    context: ServerContext, request: Request[Replay], dead_letter: Letter, served: ServedGraph
) -> HttpResponse:
    """Ask the sink of a refused change to send it again, and wait for the outcome for a while."""
    body, dataset = dead_letter.body, dead_letter.body["dataset"]
    sink = body.get("sink_id")
    if sink not in {plan.sink_id for plan in served.plan.sinks}:
        raise InvalidInputError(f"{dead_letter.id} is of a sink that is gone; a new sink gets all changes")
    if "change" not in body:
        raise InvalidInputError(
            f"{dead_letter.id} doesn't have the change, whose row is too large for a dead letter; commit the sink "
            "under another name, which gets all changes"
        )
    queue, replays = context.deployment.connectors.sinks.replays, context.deployment.topics.replays
    change = (str(sink), f"{body.get('partition')}/{body.get('offset')}")
    already = not await asyncio.to_thread(queue.ask, *change, dead_letter.id)
    deadline = asyncio.get_running_loop().time() + OUTCOME_S
    while (outcome := await asyncio.to_thread(queue.outcome, *change)) is None:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(OUTCOME_POLL_S)
    if outcome == SENT and not already:
        await asyncio.to_thread(replays.claim, dead_letter.id, request.caller.account)
        await asyncio.to_thread(replays.done, dead_letter.id)
    return json_response(
        {"id": dead_letter.id, "dataset": dataset, "already": already, "outcome": outcome or "waiting for the sink"}
    )


async def _seen(context: ServerContext, name: str, request: Request[Any, Any], mode: Mode) -> Letter:
    """Return a dead letter that the caller may see."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    topics = await asyncio.to_thread(context.deployment.state.past_topics, request.branch)
    dead_letter = await asyncio.to_thread(context.deployment.topics.letters.at, *parse_id(name))
    if dead_letter is None or not _is_of(context, dead_letter, served, topics):
        raise UnknownEntityError(
            f"branch {request.branch[:100]!r} has no dead letter {name[:40]!r}; `caraway dead-letters list` lists them"
        )
    _require(context, dead_letter, served, request, mode)
    return dead_letter


def _is_asked(dead_letter: Letter, asked: DeadLettersParameters) -> bool:
    body = dead_letter.body
    if asked.dataset is not None and body["dataset"] != asked.dataset:
        return False
    if asked.since is not None and dead_letter.written_ms < asked.since.timestamp() * 1000:
        return False
    source = str(body.get("source", ""))
    # A source is spelled "[Kafka: brokers](topic=raw, format=json)".
    system = source.partition(": ")[2].partition("](")[0]
    return asked.source in {None, source, system, body.get("webhook")}


def _is_seen(
    context: ServerContext,
    dead_letter: Letter,
    served: ServedGraph,
    topics: Collection[str],
    request: Request[Any, Any],
) -> bool:
    if not _is_of(context, dead_letter, served, topics):
        return False
    try:
        _require(context, dead_letter, served, request, Mode.READ_DATA)
    except ForbiddenError:
        return False
    return True


def _require(
    context: ServerContext, dead_letter: Letter, served: ServedGraph, request: Request[Any, Any], mode: Mode
) -> None:
    if request.caller.may_all(mode, request.branch):
        return
    dataset = dead_letter.body["dataset"]
    specs = {spec.name: spec for spec in served.graph.datasets}
    if dataset not in specs:
        # A job's dead letter names the dataset that the job computes, which may exist only between two steps of a
        # pipeline. The served graph has no such dataset, so there are no tags by which a grant that is limited to tags
        # could allow the access.
        raise ForbiddenError(
            f"account {request.caller.account!r} has {mode} by tags only, and {dataset!r} is no dataset of the branch"
        )
    # A dead letter of a pipeline's step shows a row of a dataset that the pipeline reads. So the caller needs the right
    # for all datasets that the pipelines read, too.
    read = [name for pipeline in specs[dataset].pipelines for name in datasets_read(pipeline.operator)]
    tags = context.limits.tags(served)
    for spec in (specs[name] for name in (dataset, *read) if name in specs):
        require(request.caller, mode, request.branch, tags.fields_of(spec.name, (field.name for field in spec.fields)))


def _is_of(context: ServerContext, dead_letter: Letter, served: ServedGraph, topics: Collection[str]) -> bool:
    """Return whether a dead letter belongs to the served graph, and isn't of an erased key.

    A row that was refused belongs to the dataset whose topic it would have gone to. This may be the topic of an earlier
    version, one of `topics`, so that the row can be sent again to the version that accepts it. But it isn't the topic
    of a branch that was deleted, even if that branch had the same definition.
    """
    row = dead_letter.body.get("row")
    if _is_of_source(dead_letter):
        endpoint = _endpoint(dead_letter, served)
        if endpoint is None:
            return False
        target = endpoint.targets[0]
        # Dead letters of older releases don't name their topic, so the dataset's current topic is assumed.
        topic = dead_letter.body.get("topic", target.topic)
        if topic != target.topic and topic not in topics:
            return False
        return not context.deployment.erasure.erased.hides_values(target.topic, target.erasable_of(row))
    touched = list(topics_of_step(served.plan, dead_letter.body))
    known = row if isinstance(row, dict) else {}
    erased = context.deployment.erasure.erased
    return bool(touched) and not any(erased.hides_values(topic, values_of(schema, known)) for topic, schema in touched)


def _endpoint(dead_letter: Letter, served: ServedGraph) -> Endpoint | None:
    """Return the endpoint that refused the row, feeding only the dataset that refused; None if the branch has none."""
    topics = {topic.name for topic in served.plan.topics}
    body = dead_letter.body
    try:
        endpoints = (
            served.endpoints.of_source(str(body["source"]))
            if "source" in body
            else [served.endpoints.find(str(body.get("webhook")), str(body.get("endpoint")))]
        )
    except UnknownEntityError:
        return None
    return next(
        (
            replace(endpoint, targets=(target,))
            for endpoint in endpoints
            for target in endpoint.targets
            if target.dataset == body["dataset"] and target.topic in topics
        ),
        None,
    )


def _is_of_source(dead_letter: Letter) -> bool:
    """Return whether a row was refused when it came in, and not by a step of a pipeline."""
    return "webhook" in dead_letter.body or "source" in dead_letter.body


def _check_fits(dead_letter: Letter, target: Target, row: Mapping[str, Any]) -> None:
    """Check that the dataset accepts the row now; a row that is refused again would become another dead letter."""
    errors = target.encode(table([row]), 0, 1, 0).errors
    if errors:
        reasons = "; ".join(f"{error.field or 'the row'} {error.message}" for error in errors)
        raise InvalidInputError(
            f"dead letter {dead_letter.id} still doesn't fit {target.dataset}: {reasons[:1000]}; "
            "change the dataset, or send a repaired row with the replay"
        )


def _summary(dead_letter: Letter) -> Json:
    body = dead_letter.body
    origin = f"{body.get('webhook')}/{body.get('endpoint')}" if "webhook" in body else f"job {body.get('job')}"
    if "sink" in body:
        origin = f"{body['sink']} {body.get('partition')}/{body.get('offset')}"
    if "follower" in body:
        origin = f"{body['follower']} {body.get('position')} of {body.get('topic')}"
    if "source" in body:
        known = {"dataset", "topic", "source", "reason", "row", "time"}
        origin = " ".join([str(body["source"]), *(f"{name} {body[name]}" for name in body if name not in known)])
    return {
        "id": dead_letter.id,
        "at": datetime.fromtimestamp(dead_letter.written_ms / 1000, UTC).isoformat(),
        "dataset": body["dataset"],
        "from": origin,
        "replayable": "change" in body or (_is_of_source(dead_letter) and isinstance(body.get("row"), dict)),
        "reason": "; ".join(_reasons(body))[:REASON],
    }


def _reasons(body: Mapping[str, Any]) -> Iterator[str]:
    reasons = body.get("reason")
    for reason in reasons if isinstance(reasons, list) else ():
        if isinstance(reason, dict):
            field = f"{reason['field']} " if reason.get("field") else ""
            yield f"{field}{reason.get('message', '')}"


def _cursor(text: str) -> dict[int, int]:
    """Return the offsets of an earlier answer's `next`."""
    try:
        return dict(parse_id(part) for part in text.split(",")) if text else {}
    except CarawayError:
        raise InvalidInputError(
            f"query parameter before is {text[:100]!r}; the `next` of an earlier answer is expected"
        ) from None
