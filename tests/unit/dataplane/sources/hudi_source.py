"""A Hudi table in a folder as a source, with all that outlives a reader of it, for tests of the reader.

The archive of recorded tables was written by `tests.services.hudi_recording`.
"""

import json
import tarfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from caraway.dataplane.sources.hudi.reader import HudiReader
from caraway.graph.sources import Cdc
from tests.unit.dataplane.sources.lake import ROWS, Lake

ARCHIVE = Path(__file__).with_name("recorded") / "hudi.tar.xz"


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

    def completed(self, instant: int) -> Path:
        """Return the file by which an instant has completed."""
        (found,) = (file for file in self.files(instant) if file.suffix in {".commit", ".replacecommit"})
        return found

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

    def set_property(self, name: str, value: str) -> None:
        """Change a property of the table."""
        file = self.path / ".hoodie" / "hoodie.properties"
        lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name}=")]
        file.write_text("\n".join([*lines, f"{name}={value}"]))


class HudiSource(Lake):
    """A table, and all that outlives a reader of it."""

    reads = HudiReader
    format = "hudi"

    def __init__(self, path: Path, *, cdc: Cdc = Cdc.UPSERT, **more: Any) -> None:
        super().__init__(path.parent, cdc, prefix=f"{path.name}/", **more)


class RecordedSource(HudiSource):
    """A recorded table that grows by its instants."""

    def __init__(self, folder: Path, name: str, **more: Any) -> None:
        super().__init__(folder / name, **more)
        self._name = name
        self._shown = 0

    def create_empty(self) -> None:
        self.recorded = Recorded(self.folder, self._name)
        self.recorded.hide(0)

    def grow(self) -> None:
        self.recorded.show(self._shown, self._shown + 1)
        self._shown += 1

    def bytes(self) -> int:
        """Return the bytes of the first instant, as the files of later ones are there already."""
        return sum(file.stat().st_size for file in self.path.glob(f"*_{self.recorded.instants[0]}.parquet"))


def chosen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the dataset's fields; times are texts in JSON, as Hudi's reader has them in tests."""
    found: dict[str, Any] = {each.name: values.get(each.name) for each in ROWS.fields}
    at = found["at"]
    found["at"] = (at if isinstance(at, datetime) else datetime.fromisoformat(at)).astimezone(UTC)
    return found


def applied(state: dict[int, dict[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
    """Change a dataset as rows that replace those of their keys do."""
    state.update({each["k"]: chosen(each) for each in rows})
