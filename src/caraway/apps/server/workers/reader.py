"""The parts of a reader: a process of the server that answers queries from the index that the writer fills."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.access.provider import provider_of
from caraway.apps.server.figures import write_figures
from caraway.apps.server.foundation import addresses, function_pool
from caraway.apps.server.handlers.context import ReadContext
from caraway.apps.server.http.endpoints import ANY_TOKEN, PUBLIC, Endpoint, Handler, Router, bound
from caraway.apps.server.http.errors import UnknownPathError, WrongMethodError
from caraway.apps.server.http.messages import HttpResponse
from caraway.apps.server.pages.session import CONSOLE, HOME, OPEN_PAGES
from caraway.apps.server.parts import ServerPart, ServerParts, thread_part
from caraway.apps.server.served_graph import ServedGraphs
from caraway.apps.server.surface import READS
from caraway.apps.server.tracing.tracer import tracer_of
from caraway.apps.server.watch import Watch
from caraway.apps.server.workers.forwarding import Forwarder, Forwarding
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.model import Reader
from caraway.dataplane.archive.served_log import CLOSE_S, ServedLog
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.follower import IndexFollower
from caraway.dataplane.index.storage.shared_counters import SharedCounters
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.database import connect, end_retries, require_tables
from caraway.state.erasures import ErasureLog, erasure_by
from caraway.state.listening import Listener
from caraway.state.plans import Needed, Plans
from caraway.state.reader import StateReader
from caraway.state.secrets import SecretStore
from caraway.state.tables import metadata

LOG = structlog.get_logger(__name__)

# The most seconds for which the start of a reader waits for the definitions. The reader ends on SIGTERM only after this
# wait, and the supervisor kills it 7 s after SIGTERM.
LOADING_S = 5.0
# Seconds between two catch-ups with the index. A reader catches up even without queries: until then it keeps files open
# that the writer has removed, and they take space on disk.
INDEX_INTERVAL_S = 1.0
FIGURES_INTERVAL_S = 1.0
STOP_S = 1.0


class ReaderGraphs(ServedGraphs):
    """The served graphs of a reader, which are read anew before the first request after a change."""

    def __init__(
        self,
        changes: SharedCounters,
        read: Callable[[], Needed],
        index: Reader[IndexPlan, bytes],
        functions: FunctionPool,
        poll_seconds: float,
    ) -> None:
        """Prepare as `ServedGraphs` does; `changes` counts the changes that went through this server."""
        super().__init__(read, index, functions, poll_seconds)
        self.loaded = threading.Event()
        self._changes = changes
        self._seen = changes[0]

    @override
    def reload(self) -> None:
        seen = self._changes[0]
        super().reload()
        self._seen = seen
        self.loaded.set()

    async def keep_up(self) -> None:
        """Reload, if the counter of changes has moved, before a request is answered."""
        if self._changes[0] != self._seen:
            await asyncio.to_thread(self._reload_if_possible)

    def _reload_if_possible(self) -> None:
        changes = self._changes[0]
        if changes == self._seen:
            return
        try:
            self.reload()
        except UnavailableError as error:
            # The reader goes on with the graphs that it has. The next requests don't read again, since each would wait
            # for Postgres; the reader's watch of Postgres does.
            LOG.warning("what was changed can't be read yet", reason=str(error))
            self._seen = changes


class ReaderParts:
    """The parts of a reader besides HTTP."""

    def __init__(self, settings: Settings, folder: Path, number: int) -> None:
        """Build the parts of the reader with this number; nothing runs yet.

        Args:
            settings: The settings of the server.
            folder: The folder that the processes of the server share.
            number: The number of the reader, from 1 on.

        Raises:
            ConfigurationError: Postgres or Kafka isn't named, or a library for traces isn't installed.
        """
        url, servers = addresses(settings)
        index, shared = settings.data_dir / "index", settings.server
        follower = IndexFollower(index, index.with_name(f"{index.name}.reader-{number}"))
        self._erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
        self._engine = connect(url)
        require_tables(self._engine, metadata.tables)
        self._secrets = SecretStore(self._engine, open_keyring(settings.key_file))
        # `extractor_processes` is divided among the readers, rounded up. So a server with several processes has about
        # as many processes for extractors as a server with a single process.
        self._functions = function_pool(settings, self._secrets, -(-shared.extractor_processes // shared.workers))
        writer = TopicWriter(servers)
        self.served = ServedLog(writer)
        self._plans = Plans(StateReader(self._engine))
        self._erasures = ErasureLog(self._engine)
        self._erasures_known = 0
        self.gate = Gate(
            AuditLog(self._engine),
            Access(self._engine, by="server") if shared.tokens else None,
            admin_token_file=shared.admin_token_file,
            provider=provider_of(settings.oidc),
        )
        self.graphs = ReaderGraphs(
            changes_of(folder), self._read, IndexReader(follower, self._erased), self._functions, shared.poll_seconds
        )
        self.tracer = tracer_of(settings.traces)
        watches = {
            "postgres": self.graphs.watch,
            "index": Watch("index", follower.catch_up, INDEX_INTERVAL_S),
            "figures": Watch("figures", partial(write_figures, folder, number), FIGURES_INTERVAL_S),
        }
        traces = [] if self.tracer is None else [ServerPart(name="traces", stop=partial(self.tracer.stop, STOP_S))]
        self._parts = ServerParts(
            [
                ServerPart(name="postgres", ask=partial(end_retries, self._engine), stop=self._engine.dispose),
                *traces,
                ServerPart(name="functions", start=self._functions.start, stop=self._functions.stop),
                ServerPart(name="the producer of what is served", stop=partial(writer.close, STOP_S)),
                ServerPart(name="what is served", start=self.served.start, stop=partial(self.served.stop, CLOSE_S)),
                ServerPart(name="gate", start=self.gate.start, stop=self.gate.stop),
                *(thread_part(f"the watch of {name}", watch, STOP_S) for name, watch in watches.items()),
                thread_part("listener", Listener(self._engine, self._look_at_once), 0),
            ]
        )

    def start(self) -> None:
        """Start all parts in the background, and wait a while for the definitions that queries need."""
        self._parts.start()
        # This reader listens only after the wait, so new connections go to readers that have their definitions. The
        # wait is bounded: without Postgres the reader must start all the same, and report the problem.
        self.graphs.loaded.wait(LOADING_S)

    def stop(self) -> None:
        """Stop all parts; records on their way to Kafka get some time to arrive."""
        self._parts.stop()

    def _read(self) -> Needed:
        """Return what the branches need now, after the erased keys and the secrets were read."""
        while records := self._erasures.since(self._erasures_known):
            for record in records:
                self._erased.add(record.key.topic, [erasure_by(record.key)])
            self._erasures_known = records[-1].id
        self._secrets.refresh()
        return self._plans.refresh()

    def _look_at_once(self) -> None:
        """Wake the watches that read commits and tokens, which any server or command may have changed."""
        self.graphs.watch.wake()
        self.gate.wake()


class ReaderRouter(Router):
    """Finds the routes of a reader: queries are answered here, all other requests by the writer."""

    def __init__(self, reading: ReaderParts, forwarder: Forwarder) -> None:
        """Answer from `reading`, or through `forwarder`."""
        current = [replace(each, handler=_current(reading.graphs, each.handler)) for each in READS]
        super().__init__(bound(current, ReadContext(limits=AccessLimits(reading.graphs), keep=reading.served.keep)))
        self._forwarder = forwarder

    @override
    def find(self, method: str, path: str) -> tuple[Endpoint, str]:
        try:
            return super().find(method, path)
        except (UnknownPathError, WrongMethodError):
            # The writer checks the permission that such a request needs. A reader only requires a valid token before it
            # reads a body, so that strangers can't fill its memory with bodies.
            permission, target = (PUBLIC, Forwarding.READ) if method == "GET" else (ANY_TOKEN, Forwarding.CHANGE)
            page = CONSOLE if path == HOME or path.startswith(f"{HOME}/") else None
            if page is not None and path in OPEN_PAGES:
                permission = PUBLIC
            return Endpoint(method, path, self._forwarder.answer, permission, target=target, accepts=(), page=page), ""


def _current(graphs: ReaderGraphs, handler: Handler) -> Handler:
    @wraps(handler)
    async def answer(*arguments: Any) -> HttpResponse:
        await graphs.keep_up()
        return await handler(*arguments)

    return answer


def changes_of(folder: Path) -> SharedCounters:
    """Return the shared counter that changes its value with each change that went through this server."""
    return SharedCounters(folder / "changes", 1)
