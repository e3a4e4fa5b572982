"""The end of sources that are gone for good: what their readers made in other systems is removed.

A replication slot that nobody reads fills the disk of its database. So a reader that makes such a thing remembers its
definition as an item, and has a function that removes the thing when the source is gone.
"""

from collections.abc import Collection, Mapping
from pkgutil import resolve_name
from threading import Lock
from typing import Protocol, cast

import structlog

from caraway.errors import CarawayError
from caraway.graph.connectors import Connector
from caraway.graph.pb.caraway.v1 import connectors_pb2
from caraway.graph.sources import SourceSpec
from caraway.graph.wire.messages import from_message, to_message
from caraway.ingest.sources.positions import SourcePositions
from caraway.ingest.sources.reader import Position, Resolve
from caraway.recurring import Recurring

LOG = structlog.get_logger(__name__)
# The item that has the definition of a source whose reader has made something. It has a password if the definition has
# one; definitions are stored in the same database.
DEFINITION = "definition"
# The seconds between two tries to remove what a source has made.
RETRY_S = 30.0


class Forgets(Protocol):
    """The class of a reader that makes something in its system."""

    @staticmethod
    def forget(connector: Connector, position: Position, *, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Remove what the reader made. It may be called again. Raises `UnavailableError` if that isn't possible now."""
        ...


def definition_item(source: SourceSpec) -> bytes:
    """Return the definition of a source as an item."""
    return to_message(source, connectors_pb2.Source).SerializeToString(deterministic=True)


class GoneSources:
    """Forgets sources, in a thread of its own, since their systems may be away. Thread safe."""

    def __init__(self, positions: SourcePositions, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            positions: The positions of all sources, which are forgotten last.
            resolve: Returns the values of secrets.
            endpoints: The addresses of systems in this deployment.
        """
        self._positions = positions
        self._resolve = resolve
        self._endpoints = endpoints
        self._gone: Collection[str] = ()
        self._lock = Lock()
        self._work = Recurring("gone sources", self.run, RETRY_S)

    def start(self) -> None:
        """Start."""
        self._work.start()

    def stop(self, timeout_s: float) -> None:
        """Stop, after at most `timeout_s` seconds."""
        self._work.stop(timeout_s)

    def set_gone(self, names: Collection[str]) -> None:
        """Forget these sources from now on; no source gets such a name again."""
        self._gone = names

    def run(self) -> None:
        """Forget each source that isn't forgotten yet. Raises `UnavailableError` if Postgres doesn't answer."""
        with self._lock:
            for name in self._positions.known(self._gone):
                self._forget(name)

    def _forget(self, name: str) -> None:
        found = self._positions.items(name).get(DEFINITION)
        checkpoint = self._positions.load(name)
        if found is not None and checkpoint is not None:
            source = cast("SourceSpec", from_message(connectors_pb2.Source.FromString(found)))
            reader = cast("Forgets", resolve_name(source.connector.reader))
            try:
                reader.forget(source.connector, checkpoint.position, resolve=self._resolve, endpoints=self._endpoints)
            except CarawayError as error:
                # The system may be away, or gone for good; the text has what to do by hand.
                LOG.warning(
                    "what a source has made is still there", source=source.connector.identifier, reason=str(error)
                )
                return
        self._positions.forget([name])
