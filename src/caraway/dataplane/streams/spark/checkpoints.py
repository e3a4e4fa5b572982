"""The position of a job, read from its checkpoint, which only Spark writes."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The offset of each partition, by topic.
Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a job in its input topics.

    Attributes:
        offsets: The offsets up to which all records are processed and committed; empty before the first commit.
        unfinished: True if a batch was begun and not committed. Spark has written its end offsets, so that it must
            process that batch in one piece.
        begun: The offsets up to which the unfinished batch reads; those of `offsets` if there is none.
        tasks: The number of tasks of a stateful step, which stays what it was in the first batch. None before the first
            commit.
    """

    offsets: Offsets
    unfinished: bool
    begun: Offsets
    tasks: int | None


def position_of(checkpoint: Path) -> Position:
    """Read the position of the job whose checkpoint is in this folder, which needn't exist."""
    begun, committed = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    done = max(begun & committed, default=None)
    text = None if done is None else (checkpoint / "offsets" / str(done)).read_text()
    unfinished = bool(committed) and max(begun, default=-1) > max(committed)
    offsets = {} if text is None else offsets_in(text)
    return Position(
        offsets=offsets,
        unfinished=unfinished,
        begun=offsets_in((checkpoint / "offsets" / str(max(begun))).read_text()) if unfinished else offsets,
        tasks=None if text is None else tasks_in(text),
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


def tasks_in(text: str) -> int | None:
    """Return the number of tasks that a file of Spark's offset log states; None if it states none."""
    _, metadata, *_ = text.splitlines()
    setting = json.loads(metadata).get("conf", {}).get("spark.sql.shuffle.partitions")
    return None if setting is None else int(setting)


def forget_unfinished(checkpoint: Path) -> None:
    """Remove a checkpoint in which no batch was ever committed.

    A kill in the middle of the first commit leaves a temporary file, because of which Spark refuses every later start
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). Nothing is lost: the job reads its topics from the beginning, as it did
    in the first attempt.
    """
    if checkpoint.exists() and not _batches(checkpoint / "commits"):
        shutil.rmtree(checkpoint)


def _batches(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}
