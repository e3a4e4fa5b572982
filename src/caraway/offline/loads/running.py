"""The run of a load: its tables are built on Spark, and its result is written last."""

import os
from collections.abc import Callable

import sqlalchemy as sa
import structlog

from caraway.dataplane.archive.store.reading import cuts_now
from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY
from caraway.dataplane.index.storage.store import format_of
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.credentials import sign_in
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import GraphPlan, IndexPlan, TopicPlan
from caraway.offline.loads.division import erasures_table
from caraway.offline.loads.manifest import TABLES, LoadIndex, LoadManifest, LoadTable, is_loadable, write_manifest
from caraway.offline.queries.context import QueryContext, opened_context
from caraway.offline.queries.model import LoadRequest, OfflineQuery, QueryStatus, folder_of
from caraway.offline.queries.running import ended_if_cancelled, interruption
from caraway.offline.queries.store import OfflineQueries
from caraway.process.scratch import ScratchFolder
from caraway.process.settings.settings import Settings
from caraway.state.plans import Plans
from caraway.state.reader import StateReader

LOG = structlog.get_logger(__name__)


def run_load(
    settings: Settings,
    database: sa.Engine,
    query: OfflineQuery,
    load: LoadRequest,
    objects: ObjectFolder,
    *,
    stopping: Callable[[], bool],
) -> QueryStatus | None:
    """Build the tables of an index; return how the request ended, None if it didn't.

    Raises:
        InvalidInputError: The index can't be loaded.
        UnavailableError: Something doesn't answer; the load begins again later.
    """
    queries = OfflineQueries(database)
    planned = Plans(StateReader(database)).planned(query.commit)
    plan, topic = _index_of(planned.plan, load)
    cuts = query.cuts or cuts_now(sign_in(settings.kafka), [topic.name])
    # The erased keys are read after the ends of the topic. So they have all erasures whose records are before the ends.
    with opened_context(settings, database, planned, query.request, query.commit, cuts=cuts) as context:
        found = context.source.parts(topic)
        lost = {p: first for p, first in found.begins.items() if first and load.holds(p)}
        if lost:
            raise InvalidInputError(f"records of {topic.name} before the offsets {lost} are neither there nor archived")
        queries.begin(query.id, cuts, found.rows)
        # PySpark takes a second to import, which other requests needn't wait for.
        from caraway.offline.spark.loading import tables_on_spark  # noqa: PLC0415

        interrupted = interruption(queries, query.id, stopping)
        index = LoadIndex(load=load, plan=plan, topic=topic, found=found)
        tables = tables_on_spark(settings, context, query.id, index, interrupted)
        if tables is None:
            return ended_if_cancelled(queries, query.id)
        tables += _erasures(context, plan, query.id, objects)
    offsets = {partition: end for partition, end in cuts[topic.name].items() if load.holds(partition)}
    manifest = LoadManifest(format=format_of(DEFAULT_GEOMETRY).decode(), offsets=offsets, tables=tables)
    write_manifest(objects, query.id, manifest)
    queries.end(query.id, QueryStatus.SUCCEEDED)
    LOG.info("the tables of an index are ready", dataset=plan.dataset, records=manifest.records, tables=len(tables))
    return QueryStatus.SUCCEEDED


def _index_of(plan: GraphPlan, load: LoadRequest) -> tuple[IndexPlan, TopicPlan]:
    for index in plan.indexes:
        if index.asset.hex() == load.asset and is_loadable(index):
            return index, next(topic for topic in plan.topics if topic.name == index.topic)
    raise InvalidInputError(f"the commit has no index {load.asset} that can be loaded")


def _erasures(context: QueryContext, plan: IndexPlan, query_id: str, objects: ObjectFolder) -> list[LoadTable]:
    """Write the table of the erased keys, if there are any."""
    with ScratchFolder("load") as scratch:
        path = scratch.path / "erased.sst"
        if not erasures_table(plan, context.erased, path):
            return []
        name = f"{TABLES}/erased-{os.getpid()}"
        digest = objects.put(path, f"{folder_of(query_id)}/{name}")
        return [LoadTable(name=name, digest=digest, bytes=path.stat().st_size, records=0)]
