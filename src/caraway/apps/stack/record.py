"""The record of a stack in `run/stack.json`, for `caraway status`, `caraway down` and the next start."""

from pathlib import Path

import msgspec

from caraway.process.children.part import PartStatus
from caraway.process.private_files import write_whole


class StackRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stack at one moment.

    Attributes:
        state: "starting", "running", "stopping", "stopped" or "failed".
        message: More about it, for people.
        pid: The pid of the supervising process.
        process_created_at: Creation time of that process, in seconds since 1970.
        started_at: The time at which the stack was started, in seconds since 1970.
        ports: Port by use; kept when the stack stops, so that the next start takes the same ones.
        urls: Address by part; that of Postgres contains its password.
        parts: The parts, in the order in which they are shown.
    """

    state: str
    message: str = ""
    pid: int | None = None
    process_created_at: float | None = None
    started_at: float | None = None
    ports: dict[str, int] = {}
    urls: dict[str, str] = {}
    parts: tuple[PartStatus, ...] = ()


_DECODE = msgspec.json.Decoder(StackRecord).decode


def read_record(path: Path) -> StackRecord | None:
    """Return the record in a file; None if there is none, or none that can be understood."""
    try:
        return _DECODE(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def write_record(path: Path, record: StackRecord) -> None:
    """Write a record in one piece, readable by its owner only."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(record), indent=2))
