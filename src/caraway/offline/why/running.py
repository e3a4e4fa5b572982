"""Explanations in the process of an offline query."""

from collections.abc import Mapping

import msgspec

from caraway.compute.query.catalog import Catalog
from caraway.compute.why.explaining import Question, explain
from caraway.compute.why.lookups import Listing
from caraway.compute.why.model import Why
from caraway.compute.why.parts import Hidden
from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import InvalidInputError
from caraway.offline.history.records import TopicRecords
from caraway.offline.narrowing import KeyRecords, NarrowReader
from caraway.offline.queries.context import QueryContext
from caraway.offline.queries.model import JSON_INPUT, OfflineQuery, WhyRequest, folder_of
from caraway.offline.reader import OfflineReader
from caraway.offline.sizes import MESSAGES, sizes_of
from caraway.offline.why.histories import TopicHistories
from caraway.offline.why.known import KnownRecords
from caraway.offline.why.sources import Messages, SourceRecords

# The name of the object with the explanation, in the query's folder of the object store.
NAME = "why.json"
MIB = 1 << 20


def write_explanation(
    context: QueryContext,
    query: OfflineQuery,
    asked: WhyRequest,
    *,
    objects: ObjectFolder,
    messages: Messages,
    memory_mb: int,
) -> None:
    """Compute the explanation that a query asks for, and write it.

    Args:
        context: The evaluation of the query.
        query: The query.
        asked: The request of the explanation.
        objects: The object store, which has the inputs.
        messages: The records of topics.
        memory_mb: The most memory in MiB for the records of datasets that are read as a whole.

    Raises:
        InvalidInputError: The feature can't be computed, or too many records are to be read.
        UnavailableError: The broker or the object store doesn't answer.
    """
    inputs = msgspec.json.decode(objects.read(f"{folder_of(query.id)}/{JSON_INPUT}"))
    check_memory(context, memory_mb)
    with context.reader() as reader:
        # `explanation` calls users' functions, but doesn't start their processes. `compiled` starts them if the plan
        # needs any.
        context.compiled(reader)
    found = explanation(context, query, asked, inputs, messages)
    objects.write(f"{folder_of(query.id)}/{NAME}", msgspec.json.encode(found))


def check_memory(context: QueryContext, memory_mb: int) -> None:
    """Raise `InvalidInputError` if datasets of which all records are needed have too many."""
    plans = context.planned.plan
    with context.reader() as reader:
        steps = context.plan(reader).plan.steps
    sizes = sizes_of(steps, plans.indexes, plans.topics, context.source, piece=MESSAGES)
    whole = {index.dataset for index in plans.indexes if not is_divisible(index)}
    needed_mb = sum(size.bytes for size in sizes if size.dataset in whole) // MIB
    if needed_mb > memory_mb:
        raise InvalidInputError(
            f"all records of {', '.join(sorted(whole))} are needed, since they have discrete windows; that takes about "
            f"{needed_mb:,} MiB, and {memory_mb:,} are allowed (the setting offline.memory_mb)"
        )


def explanation(
    context: QueryContext, query: OfflineQuery, asked: WhyRequest, inputs: dict[str, object], messages: Messages
) -> Why:
    """Return an explanation, given the inputs of the feature."""
    source: TopicRecords = context.source
    if asked.as_known:
        source = KnownRecords(source, asked.at_us)
    plans = context.planned.plan
    catalog = Catalog(query.commit, context.planned.graph)
    records = KeyRecords(source, plans.indexes, whole=True)
    reader = NarrowReader(records, lambda found: _reader(context, found))
    hidden = hides(asked.hidden, catalog)
    sources = SourceRecords(plans, catalog.datasets, messages, context.erased, hidden)
    histories = TopicHistories(records, plans, catalog.datasets, sources, context.erased)
    question = Question(
        feature=asked.feature,
        inputs=inputs,
        at_us=asked.at_us,
        listing=Listing(asked.offset, asked.limit, asked.sample),
        as_known=asked.as_known,
        branch=query.branch,
    )
    return explain(
        catalog, reader, histories, question, compile_python=context.functions.compiler(query.commit), hidden=hidden
    )


def hides(refused: Mapping[str, str], catalog: Catalog) -> Hidden:
    """Return why a dataset, or a field of one, isn't shown.

    A dataset as a whole is shown only if all of its fields are.

    Args:
        refused: The datasets and full names of fields that the caller may not read, with the reason.
        catalog: The graph.
    """

    def hidden(dataset: str, field: str | None) -> str | None:
        if field is not None:
            return refused.get(dataset) or refused.get(f"{dataset}.{field}")
        names = [dataset, *(f"{dataset}.{part.name}" for part in catalog.dataset(dataset).fields)]
        return next((refused[name] for name in names if name in refused), None)

    return hidden


def _reader(context: QueryContext, source: TopicRecords) -> OfflineReader:
    plans = context.planned.plan
    return OfflineReader(source, plans.indexes, plans.topics, erased=context.erased)
