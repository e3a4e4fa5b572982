"""All that an offline query's evaluation needs, from the settings and the records of its deployment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.catalog import Catalog
from caraway.dataplane.archive.erasing import TableErasures
from caraway.dataplane.archive.store.reading import ArchivedTopics, Cuts
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.offline.engine import OfflineEngine, OfflinePlan
from caraway.offline.history.records import TopicRecords
from caraway.offline.queries.model import OfflineRequest
from caraway.offline.reader import Memory, OfflineReader, SeriesReader
from caraway.offline.stopwatch import Stopwatch
from caraway.process.confinement.configured import confinement_of
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.erasures import ErasureLog
from caraway.state.plans import Planned
from caraway.state.secrets import SecretStore


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """The evaluation of one offline query.

    Attributes:
        request: The request.
        commit: The commit that it asks.
        planned: The graph of the commit, and its plan.
        cuts: The offsets up to which topics are read.
        source: The records of all topics, up to these offsets.
        erased: The keys without rows.
        functions: The processes for users' functions.
        secrets: The values of secrets.
        watch: Takes the time of the query's steps.
    """

    request: OfflineRequest
    commit: str
    planned: Planned
    cuts: Cuts
    source: ArchivedTopics
    erased: ErasedKeys
    functions: FunctionPool
    secrets: SecretStore
    watch: Stopwatch = field(default_factory=Stopwatch)

    def reader(self, source: TopicRecords | None = None, memory: Memory | None = None) -> OfflineReader:
        """Return a new reader of all datasets, from `source` or else from all records.

        `memory` bounds the records that it holds in memory.
        """
        plan = self.planned.plan
        return OfflineReader(
            source or self.source,
            plan.indexes,
            plan.topics,
            erased=self.erased,
            known=self.request.as_known,
            memory=memory,
            watch=self.watch,
        )

    def plan(self, reader: SeriesReader) -> OfflinePlan:
        """Return the plan of the query, whose lookups read through `reader`; it can't call users' functions yet."""
        catalog = Catalog(self.commit, self.planned.graph)
        engine = OfflineEngine(catalog, reader, self.functions.compiler(self.commit), self.watch)
        return engine.plan(self.request.inputs, self.request.outputs)

    def compiled(self, reader: SeriesReader) -> OfflinePlan:
        """Return the plan of the query, whose lookups read through `reader`, and start what it needs."""
        plan = self.plan(reader)
        if plan.runs_user_code:
            self.secrets.refresh()
            self.functions.start()
        return plan


@contextmanager
def opened_context(
    settings: Settings, database: sa.Engine, planned: Planned, request: OfflineRequest, commit: str, *, cuts: Cuts
) -> Iterator[QueryContext]:
    """Yield the context of a query that reads up to offsets, and end its processes afterwards.

    Raises `UnavailableError` if Postgres, reached by `database`, doesn't answer.
    """
    keyring = open_keyring(settings.key_file)
    erased = ErasedKeys(keyring.mac_keys)
    TableErasures(ErasureLog(database), erased).refresh()
    secrets = SecretStore(database, keyring)
    functions = FunctionPool(
        1,
        settings.offline.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
    )
    try:
        yield QueryContext(
            request=request,
            commit=commit,
            planned=planned,
            cuts=cuts,
            source=ArchivedTopics(sign_in(settings.kafka), settings.objects_url, cuts),
            erased=erased,
            functions=functions,
            secrets=secrets,
        )
    finally:
        functions.stop()
