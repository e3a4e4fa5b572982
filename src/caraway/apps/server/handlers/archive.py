"""The handler that shows the tables of the archive."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.dataplane.archive.reports import ArchivedTable
from caraway.dataplane.archive.served import SERVED_PLAN
from caraway.dataplane.archive.store.model import archived_topics
from caraway.dataplane.topics.positions import Offsets, TopicEnds
from caraway.graph.plan.model import TopicKind, TopicPlan

# The words of the glossary for the records of each kind of topic.
KINDS = {
    TopicKind.EVENTS: "events",
    TopicKind.VERSIONS: "versions",
    TopicKind.AGGREGATE_INPUTS: "aggregate inputs",
}

# The table of served features has rows of all branches.
SERVED_ROWS = "rows of all branches"


class ArchiveTableAnswer(Struct):
    """A table of the archive; what isn't known before its first write is null.

    `records` are those in the table, among which each correction and retraction of a row is one of its own. `rows` are
    what they come to, where that is the same number; null where records may be corrected, or replace one another by
    key. `messages` are those of the topic that aren't in the table yet. Most messages are one record, and blocks are up
    to a hundred.
    """

    dataset: str
    topic: str
    kind: str
    url: str | None = None
    records: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    messages: int | None = None
    written_at: str | None = None


class ArchiveAnswer(Struct):
    """The tables of a branch's datasets, and that of served features."""

    branch: str
    tables: list[ArchiveTableAnswer]


async def archive(context: ServerContext, request: Request) -> HttpResponse:
    """Return the tables of the branch's datasets, and that of served features: where they are, how large, how late."""
    deployment = context.deployment
    served = deployment.graphs.require_served_graph(request.branch)
    seen = {spec.name for spec in context.limits.definitions(request, served).datasets}
    archived = archived_topics([served.plan]).items()
    topics = {name: topic for name, topic in archived if topic.dataset in seen} | {SERVED_PLAN.name: SERVED_PLAN}
    reports = await asyncio.to_thread(deployment.offline.reports.all)
    # A table that was never written has no position that could be compared with the end of its topic.
    written = topics.keys() & reports.keys()
    ends = await asyncio.to_thread(TopicEnds(deployment.topics.servers).ends, written) if written else {}
    return json_response(msgspec.to_builtins(ArchiveAnswer(request.branch, answered(topics.values(), reports, ends))))


def answered(
    topics: Iterable[TopicPlan], reports: Mapping[str, ArchivedTable], ends: Offsets
) -> list[ArchiveTableAnswer]:
    """Return the tables of topics, in the order of their datasets."""
    tables = []
    for topic in sorted(topics, key=lambda topic: (topic.dataset, topic.name)):
        kind = SERVED_ROWS if topic.name == SERVED_PLAN.name else KINDS[topic.kind]
        table = ArchiveTableAnswer(topic.dataset, topic.name, kind)
        found = reports.get(topic.name)
        if found is not None:
            report, known = found.report, ends.get(topic.name)
            table.url, table.written_at = report.url, found.written_at.isoformat()
            table.records, table.files, table.bytes = report.size.rows, report.size.files, report.size.bytes
            if not topic.revised and topic.kind is not TopicKind.VERSIONS:
                table.rows = table.records
            if known is not None:
                table.messages = sum(max(0, end - report.positions.get(p, 0)) for p, end in known.items())
        tables.append(table)
    return tables
