"""The removal of sources that are gone for good: their positions here, and what their readers made in their systems.

When a source is gone, no commit has its definition any more. So the worker saves the definition with the items of a
source whose connector names a function that removes such things, before its reader makes any.
"""

import threading
from collections.abc import Collection
from contextlib import closing, suppress
from functools import partial

import structlog

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.reader import DEFINITION, Resolve, SourceContext
from caraway.dataplane.sources.remote import open_process
from caraway.errors import CarawayError
from caraway.graph.plan.model import IngestPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.wire.graphs import decode_graph, encode_graph
from caraway.process.settings.connectors import SourcesSettings

LOG = structlog.get_logger(__name__)

# The seconds after which the removal of what one source has left is given up, and tried again later.
REMOVAL_S = 300.0


def definition_of(plan: IngestPlan) -> bytes:
    """Return the definition of a source, as it is saved: its dataset with this source alone."""
    return encode_graph(Graph(datasets=(_only(plan),)))


class SourceRemoval:
    """Removes sources, in a thread of its own, since systems may take long to answer."""

    def __init__(
        self,
        positions: SourcePositions,
        resolve: Resolve,
        settings: SourcesSettings,
        limits: ConnectorLimits = UNLIMITED,
    ) -> None:
        """Prepare.

        Args:
            positions: The positions and items of sources.
            resolve: Returns the values of secrets.
            settings: The settings of sources.
            limits: The limits of sources.
        """
        self._limits = limits
        self._positions = positions
        self._resolve = resolve
        self._settings = settings
        self._thread: threading.Thread | None = None

    def start(self, gone: Collection[str]) -> None:
        """Begin to remove sources, unless the last call's removals still go on.

        A source whose system doesn't answer is left, and removed by a later call.
        """
        if gone and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, args=(gone,), name="removal of sources", daemon=True)
            self._thread.start()

    def _run(self, gone: Collection[str]) -> None:
        # If Postgres doesn't answer, a later call removes the sources.
        with suppress(CarawayError):
            self.remove(gone)

    def remove(self, gone: Collection[str]) -> None:
        """Remove sources; raises `UnavailableError` if Postgres doesn't answer."""
        definitions = self._positions.item(DEFINITION, gone)
        left = {name for name, content in definitions.items() if not self._forget(name, content)}
        self._positions.forget(set(gone) - left)

    def _forget(self, name: str, content: bytes) -> bool:
        """Remove what the reader of a source made in its system, and return whether that was possible."""
        checkpoint = self._positions.load(name)
        if checkpoint is None or not checkpoint.position:
            return True
        secrets = HiddenSecrets(self._resolve)
        try:
            (dataset,) = decode_graph(content).datasets
            (source,) = dataset.sources
            connector = source.connector
            context = SourceContext(
                name=name,
                source=source,
                dataset=dataset,
                columns=None,
                resolve=secrets,
                endpoints=self._settings.endpoints,
                local_folders=self._settings.local_folders,
            )
            hold = self._limits.hold(connector)
            opened = partial(open_process, "HostedRemoval", connector.forget, connector, context)
            with hold(), closing(opened(limits=self._limits, seconds=REMOVAL_S)) as process:
                process.call("forget", dict(checkpoint.position))
        except CarawayError as error:
            LOG.warning(
                "what a source that is gone has left in its system couldn't be removed yet",
                source=name,
                error=secrets.hide(str(error)),
            )
            return False
        return True


def _only(plan: IngestPlan) -> DatasetSpec:
    """Return the dataset of a source without its other sources and its pipelines."""
    given = plan.dataset
    return DatasetSpec(
        name=given.name,
        version=given.version,
        history_us=given.history_us,
        fields=given.fields,
        index=given.index,
        sources=(plan.source,),
    )
