"""What the checkpoint of a job tells of its position; Spark writes it, nobody else may."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Of each topic the offset of each partition.
Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a job is.

    Attributes:
        offsets: The offsets up to which all is done and committed; empty before the first commit.
        unfinished: Whether a batch was begun whose end is settled already, so that it has to be done in one piece.
    """

    offsets: Offsets
    unfinished: bool


def position_of(checkpoint: Path) -> Position:
    """Read the position of the job whose checkpoint is in this folder, which needn't exist."""
    begun, committed = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    done = max(begun & committed, default=None)
    return Position(
        offsets={} if done is None else offsets_in((checkpoint / "offsets" / str(done)).read_text()),
        unfinished=bool(committed) and max(begun, default=-1) > max(committed),
    )


def next_batch(checkpoint: Path) -> int:
    """Return the number of the first batch of a job that is started on this checkpoint."""
    return max(_batches(checkpoint / "commits"), default=-1) + 1


def offsets_in(text: str) -> Offsets:
    """Parse a file of Spark's offset log: a version, metadata, and a line for each source."""
    _, _, *sources = text.splitlines()
    found: dict[str, dict[int, int]] = {}
    for source in sources:
        for topic, partitions in json.loads(source).items():
            found[topic] = {int(partition): offset for partition, offset in partitions.items()}
    return found


def forget_unfinished(checkpoint: Path) -> None:
    """Remove a checkpoint in which no batch was ever committed.

    A kill in the middle of the first commit leaves a temporary file, on which Spark refuses to start ever again
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). Nothing is lost: the job begins at the beginning, as it did then.
    """
    if checkpoint.exists() and not _batches(checkpoint / "commits"):
        shutil.rmtree(checkpoint)


def _batches(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}
