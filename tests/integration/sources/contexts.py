"""The contexts with which readers are opened in tests that have no server."""

from collections.abc import Mapping

from caraway.dtypes.types import DATETIME, INT
from caraway.graph.connectors import Connector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec
from caraway.ingest.sources.reader import Resolve, SourceContext


def context_of(
    connector: Connector,
    *,
    endpoints: Mapping[str, str] | None = None,
    resolve: Resolve = str,
    name: str = "source-1",
    cdc: Cdc = Cdc.APPEND,
) -> SourceContext:
    """Return the context of a source of a dataset of numbers."""
    source = SourceSpec(connector=connector, cdc=cdc, disorder_us=0)
    fields = (FieldSpec(name="n", dtype=INT), FieldSpec(name="at", dtype=DATETIME, timestamp=True))
    dataset = DatasetSpec(name="Numbers", version=1, history_us=0, fields=fields, sources=(source,), index=None)
    return SourceContext(
        name=name, source=source, dataset=dataset, columns=None, resolve=resolve, endpoints=endpoints or {}
    )
