"""A Hudi table in a folder as a source, with all that outlives a reader of it, for tests of the reader.

The archive of recorded tables was written by `tests.services.hudi_recording`.
"""

import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from caraway.dtypes.types import DATETIME, INT, STRING, OptionalType
from caraway.graph.connectors import FilesConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from caraway.graph.systems import FilesSystem
from caraway.ingest.sources.hudi.reader import HudiReader
from caraway.ingest.sources.reader import Position, SourceBatch, SourceContext
from caraway.ingest.sources.rounds import Rounds
from caraway.ingest.targets import Target
from caraway.plan.planner import plan_graph
from tests.unit.ingest.encoded_alike import check_encoded

ARCHIVE = Path(__file__).with_name("recorded") / "hudi.tar.xz"
EVERY_US = 60_000_000
ROWS = DatasetSpec(
    name="Rows",
    version=1,
    history_us=0,
    fields=(
        FieldSpec(name="k", dtype=INT, key=True),
        FieldSpec(name="text", dtype=STRING),
        FieldSpec(name="n", dtype=OptionalType(INT)),
        FieldSpec(name="part", dtype=OptionalType(STRING)),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    ),
    index=None,
)
EVENTS = replace(ROWS, fields=tuple(replace(each, key=False) for each in ROWS.fields))


class Recorded:
    """A recorded table, whose instants can be taken away from its end, as if they weren't written yet."""

    def __init__(self, folder: Path, name: str) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        self.path = folder / name
        self.away = folder / "away"
        self.away.mkdir()
        self.states: dict[str, list[dict[str, Any]]] = json.loads((folder / f"{name}.json").read_text())
        self.instants = sorted(self.states)
        self.timeline = self.path / ".hoodie" / ("timeline" if name.endswith("8") else "")

    def content(self, instant: int) -> dict[int, dict[str, Any]]:
        """Return the rows that Hudi reads as of an instant, by key."""
        return {each["k"]: chosen(each) for each in self.states[self.instants[instant]]}

    def files(self, instant: int) -> list[Path]:
        """Return the files of an instant on the timeline."""
        return sorted(self.timeline.glob(f"{self.instants[instant]}*"))

    def hide(self, first: int) -> None:
        """Take the instants from one on away."""
        for number in range(first, len(self.instants)):
            for file in self.files(number):
                file.rename(self.away / file.name)

    def show(self, first: int, stop: int | None = None) -> None:
        """Bring instants back."""
        for at in self.instants[first:stop]:
            for file in self.away.glob(f"{at}*"):
                file.rename(self.timeline / file.name)


@dataclass
class HudiSource:
    """A table, and all that outlives a reader of it."""

    path: Path
    cdc: Cdc = Cdc.NATIVE
    time: float = 1_700_000_000.0
    position: Position = field(default_factory=dict)
    target: Target = field(init=False)
    dataset: DatasetSpec = ROWS
    source: dict[str, Any] = field(default_factory=dict)

    def open(self) -> HudiReader:
        folder = str(self.path.parent)
        connector = FilesConnector(
            system=FilesSystem(name="files"), container=folder, prefix=f"{self.path.name}/", format="hudi"
        )
        spec = SourceSpec(connector=connector, cdc=self.cdc, disorder_us=0, every_us=EVERY_US, **self.source)
        plan = plan_graph(Graph(datasets=(replace(self.dataset, sources=(spec,)),))).ingests[0]
        self.target = Target(plan)
        context = SourceContext(
            name="rows",
            source=spec,
            dataset=plan.dataset,
            columns=self.target.columns,
            resolve=str,
            local_folders=(folder,),
        )
        return HudiReader(connector, context, rounds=Rounds(EVERY_US, now=lambda: self.time, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def seek(self) -> HudiReader:
        opened = self.open()
        self.position = opened.seek(self.position, {})
        return opened

    def drain(self, *, rows: int = 1000) -> list[SourceBatch]:
        """Read one round."""
        opened = self.seek()
        found: list[SourceBatch] = []
        while True:
            batch = opened.poll(rows=rows, size=1 << 22, timeout_s=EVERY_US)
            if batch is None:
                continue
            check_encoded(self.target, batch)
            found.append(batch)
            self.position = batch.position
            if not batch.position["reading"]:
                opened.close()
                return found

    def first(self, rows: int) -> list[dict[str, Any]]:
        """Read some rows of the first round, and remember the position behind them."""
        opened = self.seek()
        batch = opened.poll(rows=rows, size=1 << 22, timeout_s=0)
        assert batch is not None
        opened.close()
        self.position = batch.position
        return rows_of([batch])


def rows_of(found: Sequence[SourceBatch]) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", batch.rows.row(number)) for batch in found for number in range(len(batch.rows))]


def chosen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the dataset's fields; times are texts in JSON, as Hudi's reader has them in tests."""
    found: dict[str, Any] = {each.name: values.get(each.name) for each in ROWS.fields}
    at = found["at"]
    found["at"] = (at if isinstance(at, datetime) else datetime.fromisoformat(at)).astimezone(UTC)
    return found


def applied(state: dict[int, dict[str, Any]], changes: Sequence[Mapping[str, Any]]) -> None:
    """Change a dataset as envelopes say."""
    for change in changes:
        if change["op"] == "d":
            assert change["after"] is None
            del state[change["before"]["k"]]
        else:
            assert change["op"] in {"c", "r"}
            assert change["before"] is None
            state[change["after"]["k"]] = chosen(change["after"])
