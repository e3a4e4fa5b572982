"""Writes the small Hudi tables that tests without a JVM read: `python -m tests.services.hudi_recording`.

The archive has a table of version 6 and one of version 8. Beside each is a JSON file with the rows that Hudi itself
reads as of each instant. The last instant deletes a row.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.services.hudi import HudiTables, running_hudi

ARCHIVE = Path(__file__).parents[1] / "unit" / "dataplane" / "sources" / "recorded" / "hudi.tar.xz"
WITHOUT_PARTITIONS = {
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}


def row(key: int, text: str, minute: int) -> dict[str, Any]:
    return {
        "k": key,
        "text": text,
        "n": key * 10,
        "part": "p",
        "at": f"2024-01-01T00:{minute:02d}:00Z",
        "other": "o",
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with running_hudi(folder) as hudi:
            for version in (6, 8):
                record(hudi, folder / f"cow{version}", version)
        ARCHIVE.parent.mkdir(exist_ok=True)
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for path in sorted(folder.glob("*[68]*")):
                archive.add(path, path.name, filter=chosen)
    sys.stdout.write(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes\n")


def record(hudi: HudiTables, path: Path, version: int) -> None:
    """Write a table by some instants, one of which is a clustering if the table is of version 8."""

    def write(operation: str, *rows: dict[str, Any]) -> None:
        hudi.write(path, rows, operation, version=version, options=WITHOUT_PARTITIONS)

    write("upsert", *(row(key, "first", 0) for key in range(6)))
    write("upsert", row(1, "second", 1), row(6, "second", 1))
    if version > 6:
        # The procedures of Hudi 1 write tables of its own version only.
        hudi.sql(f"call run_clustering(path => '{path}', order => 'k')")
    write("upsert", row(1, "third", 3), row(3, "third", 3))
    write("delete", row(2, "", 4))
    timeline = path / ".hoodie" / ("timeline" if version > 6 else "")
    instants = sorted(
        file.name.partition(".")[0].partition("_")[0]
        for file in timeline.iterdir()
        if file.suffix in {".commit", ".replacecommit"} and not file.name.startswith(".")
    )
    states = {at: hudi.read(path, at) for at in instants}
    path.with_suffix(".json").write_text(json.dumps(states, indent=1))


def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file as it is archived; None for checksums and for empty folders of Hudi's own."""
    name = member.name.rpartition("/")[2]
    if name.endswith(".crc") or name in {".aux", ".temp", ".schema", "archived", "history"}:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
