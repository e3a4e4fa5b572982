"""The blueprints of a plan: the topics, jobs and indexes that it needs, each by its content, with its requirements.

Names in a plan contain the hash of their content, so equal pieces of two branches or two commits are one asset. If a
content is wanted again after its asset was destroyed, it gets a new *generation*, whose name differs. So leftovers of
the old generation (a delayed worker, a checkpoint, offsets in an index) can't be mistaken for the new one.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import TopologicalSorter

from caraway.graph.fingerprints import source_fingerprint
from caraway.graph.plan.model import GraphPlan, IndexPlan, IngestPlan, JobPlan, SinkPlan, TopicPlan

FIRST_GENERATION = 1
# Separates, in the content of an index, the index's name from the topic that it writes.
EMITS = ">"
# The name of a source's asset ends with this many hexadecimal digits of the source's fingerprint. The number of a
# generation may follow. A generation always has fewer digits, so the two can't be confused.
DEFINITION_DIGITS = 12


class AssetKind(StrEnum):
    """The kinds of assets."""

    TOPIC = "topic"
    JOB = "job"
    INDEX = "index"
    INGEST = "ingest"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A wanted asset.

    `content` is its identity. `requires` are the contents that must exist before it and as long as it does, and
    `writes` are those of them to which it writes.
    """

    kind: AssetKind
    content: str
    dataset: str
    requires: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in the plan."""
        return self.content.partition(":")[2]


def blueprints(plan: GraphPlan) -> tuple[Blueprint, ...]:
    """Return the blueprints of a plan; each comes after those that it requires."""
    writers = {job.output.name: content_of(job) for job in plan.jobs} | {
        index.emits.name: content_of(index) for index in plan.indexes if index.emits is not None
    }
    found = [_topic(topic) for topic in _topics(plan)]
    found += [_job(job, writers) for job in plan.jobs]
    found += [_index(index, writers) for index in plan.indexes]
    found += [
        Blueprint(
            kind=AssetKind.INGEST,
            content=content_of(ingest),
            dataset=ingest.topic.dataset,
            requires=(content_of(ingest.topic),),
        )
        for ingest in plan.ingests
    ]
    found += [
        Blueprint(
            kind=AssetKind.SINK,
            content=content_of(sink),
            dataset=sink.dataset.name,
            requires=_with_writers([sink.topic.name], writers),
        )
        for sink in plan.sinks
    ]
    by_content = {blueprint.content: blueprint for blueprint in found}
    order = TopologicalSorter({content: blueprint.requires for content, blueprint in by_content.items()})
    return tuple(by_content[content] for content in order.static_order())


def content_of(piece: TopicPlan | JobPlan | IndexPlan | IngestPlan | SinkPlan) -> str:
    """Return the identity of a piece of a plan."""
    match piece:
        case TopicPlan():
            return f"{AssetKind.TOPIC}:{piece.name}"
        case JobPlan():
            return f"{AssetKind.JOB}:{piece.job_id}"
        case IndexPlan():
            # An index that also writes its rows to a topic, for jobs that read them, has the name of that topic in its
            # content. So it is another asset than an index of the same data that only answers queries.
            emits = "" if piece.emits is None else f"{EMITS}{piece.emits.name}"
            return f"{AssetKind.INDEX}:{piece.asset.hex()}{emits}"
        case IngestPlan():
            # The fingerprint leaves out a source's address, credentials, pickles and interval of polling. So a source
            # in which only these have changed is the same asset, and reading continues from the position that it had
            # reached.
            return f"{AssetKind.INGEST}:{piece.topic.name}.{source_fingerprint(piece.source).hex()[:DEFINITION_DIGITS]}"
        case SinkPlan():
            return f"{AssetKind.SINK}:{piece.sink_id}"


def id_of(kind: AssetKind, name: str, generation: int) -> str:
    """Return the id of a generation of an asset: its kind, a colon and the name of the generation."""
    if generation == FIRST_GENERATION:
        return f"{kind}:{name}"
    if kind is AssetKind.INDEX:
        asset, emits, topic = name.partition(EMITS)
        return f"{kind}:{_further(bytes.fromhex(asset), generation).hex()}{emits}{topic}"
    return f"{kind}:{name}.{generation}"


def source_name(asset: str) -> str:
    """Return the name under which servers read a source, given the name of its asset.

    Servers name a source after its topic and its definition. In a further generation the topic has the number of the
    generation behind its name, so that it stands before the definition there, and behind it in the asset's name.
    """
    rest, _, last = asset.rpartition(".")
    topic, _, definition = rest.rpartition(".")
    is_generation = len(last) < DEFINITION_DIGITS and last.isdecimal() and len(definition) == DEFINITION_DIGITS
    return f"{topic}.{last}.{definition}" if is_generation else asset


def apply_generations(plan: GraphPlan, generations: Mapping[str, int]) -> GraphPlan:
    """Return a plan whose pieces have the names of their generations; 1 is that of contents without an entry."""
    if not generations:
        return plan

    def named(kind: AssetKind, name: str) -> str:
        return id_of(kind, name, generations.get(f"{kind}:{name}", FIRST_GENERATION)).partition(":")[2]

    def topic(given: TopicPlan) -> TopicPlan:
        return replace(given, name=named(AssetKind.TOPIC, given.name))

    def job(given: JobPlan) -> JobPlan:
        return replace(
            given,
            job_id=named(AssetKind.JOB, given.job_id),
            inputs=tuple(topic(read) for read in given.inputs),
            output=topic(given.output),
        )

    def index(given: IndexPlan) -> IndexPlan:
        return replace(
            given,
            asset=bytes.fromhex(named(AssetKind.INDEX, content_of(given).partition(":")[2]).partition(EMITS)[0]),
            topic=named(AssetKind.TOPIC, given.topic),
            emits=None if given.emits is None else topic(given.emits),
        )

    return replace(
        plan,
        topics=tuple(topic(given) for given in plan.topics),
        jobs=tuple(job(given) for given in plan.jobs),
        indexes=tuple(index(given) for given in plan.indexes),
        ingests=tuple(replace(given, topic=topic(given.topic)) for given in plan.ingests),
        sinks=tuple(
            replace(given, sink_id=named(AssetKind.SINK, given.sink_id), topic=topic(given.topic))
            for given in plan.sinks
        ),
        checks=tuple(
            replace(given, topic=topic(given.topic), erased_on=named(AssetKind.TOPIC, given.erased_on))
            for given in plan.checks
        ),
    )


def _further(asset: bytes, generation: int) -> bytes:
    return hashlib.sha256(asset + generation.to_bytes(4)).digest()[: len(asset)]


def _topics(plan: GraphPlan) -> Iterable[TopicPlan]:
    """Yield all topics of a plan, including those between the jobs of one dataset."""
    yield from plan.topics
    for job in plan.jobs:
        yield from (*job.inputs, job.output)
    yield from (index.emits for index in plan.indexes if index.emits is not None)


def _topic(topic: TopicPlan) -> Blueprint:
    return Blueprint(kind=AssetKind.TOPIC, content=content_of(topic), dataset=topic.dataset)


def _job(job: JobPlan, writers: Mapping[str, str]) -> Blueprint:
    output = content_of(job.output)
    before = _with_writers([topic.name for topic in job.inputs], writers)
    return Blueprint(
        kind=AssetKind.JOB,
        content=content_of(job),
        dataset=job.dataset,
        requires=(*before, output),
        writes=(output,),
    )


def _index(index: IndexPlan, writers: Mapping[str, str]) -> Blueprint:
    written = () if index.emits is None else (content_of(index.emits),)
    return Blueprint(
        kind=AssetKind.INDEX,
        content=content_of(index),
        dataset=index.dataset,
        requires=(*_with_writers([index.topic], writers), *written),
        writes=written,
    )


def _with_writers(topics: Sequence[str], writers: Mapping[str, str]) -> tuple[str, ...]:
    """Return topics and what writes them, since a reader of a topic can't have caught up before its writer has."""
    found = [f"{AssetKind.TOPIC}:{name}" for name in topics]
    return tuple(dict.fromkeys([*found, *(writers[name] for name in topics if name in writers)]))
