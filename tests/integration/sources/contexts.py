"""The contexts with which readers are opened in tests that have no server."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from caraway.dataplane.sources.reader import Position, Resolve, SourceBatch, SourceContext
from caraway.dtypes.types import DATETIME, INT
from caraway.graph.connectors import Connector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec


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


@dataclass
class Saved:
    """The position and the items, as a worker saves them."""

    position: Position = field(default_factory=dict)
    items: dict[str, bytes] = field(default_factory=dict)

    def save(self, batch: SourceBatch) -> None:
        self.position = json.loads(json.dumps(batch.position))
        for item, value in batch.items.items():
            if value is None:
                self.items.pop(item, None)
            else:
                self.items[item] = value
