"""The timeline of a Hudi table: the instants that have completed, in the order in which Hudi applies them.

A timeline is a folder of small files, one for each state of an instant. Their names have the time at which the instant
was requested, by which `hudi` finds the rows as of an instant. The library lists no instants that are under way, so the
names are listed here (https://hudi.apache.org/tech-specs-1point0/#timeline).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from caraway.errors import UnavailableError
from caraway.ingest.sources.files.stored import StoredFile
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW

# <requested>.commit in tables of version 6, <requested>_<completed>.commit in those of version 8.
NAME = re.compile(r"^(\d{14,17})(?:_\d{14,17})?\.([a-z.]+)$")
# The actions that may change rows. A compaction completes as a commit, a clustering as a replacecommit.
CHANGES = frozenset({"commit", "deltacommit", "replacecommit"})
# Instants under way behind which nothing is read yet, since rows as of later instants would change when they complete.
BLOCKING = CHANGES | {"clustering", "logcompaction"}
# How many instants before the last one are remembered, to notice one that completes too late.
RECENT = 100


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant that has completed.

    Attributes:
        at: The time at which it was requested, as Hudi writes it; instants are in the order of these texts.
        completed_ms: When its last file was written, in milliseconds since the epoch, as the store says.
        is_compaction: True if it changes no rows.
    """

    at: str
    completed_ms: int
    is_compaction: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of a table.

    Attributes:
        done: Those that have completed and may have changed rows, in order.
        readable: Those of them that aren't behind an instant under way.
        cleans: The cleaner's instants that are under way, by the times at which they were requested.
        cleaned: Those that have completed.
    """

    done: Sequence[Instant]
    readable: Sequence[Instant]
    cleans: frozenset[str]
    cleaned: frozenset[str]


def timeline_of(files: Iterable[StoredFile], version: int) -> Timeline:
    """Return the timeline of a table of version 6 or 8 from the files of its folder."""
    done: dict[str, Instant] = {}
    begun: dict[str, str] = {}
    cleans: set[str] = set()
    cleaned: set[str] = set()
    for file in files:
        match = NAME.match(file.path.rpartition("/")[2])
        if match is None:
            continue
        at, kind = match.groups()
        action, _, state = kind.rpartition(".")
        if state in CHANGES and not action:
            done[at] = Instant(at, file.written_ns // 1_000_000)
        elif kind == "clean":
            cleaned.add(at)
        elif action == "clean":
            cleans.add(at)
        elif state in {"requested", "inflight"}:
            # The first file of a commit under way has no action in its name.
            begun[at] = action or "commit"
    # Log files of version 6 name a compaction under way as their base, which the library doesn't look through.
    blocking = BLOCKING | {"compaction"} if version == 6 else BLOCKING
    pending = min((at for at, action in begun.items() if action in blocking and at not in done), default="~")
    compactions = {at for at, action in begun.items() if action == "compaction"}
    every = (replace(instant, is_compaction=instant.at in compactions) for instant in done.values())
    ordered = sorted(every, key=lambda instant: instant.at)
    return Timeline(
        done=ordered,
        readable=[instant for instant in ordered if instant.at < pending],
        cleans=frozenset(cleans - cleaned),
        cleaned=frozenset(cleaned),
    )


def unread(timeline: Timeline, done: str, recent: Sequence[str], where: str) -> list[Instant]:
    """Return the instants behind one that was read, in order.

    Args:
        timeline: The timeline.
        done: The instant that was read last.
        recent: The instants up to that one that were on the timeline then, the last ones of them in order.
        where: The table, for people.

    Raises:
        UnavailableError: Instants may be missing: the one that was read is gone, or one has completed too late.
    """
    there = [instant.at for instant in timeline.done]
    if done not in there:
        if any(at < done for at in there):
            raise UnavailableError(
                f"{where}: the instant {done}, which was read last, is gone, since the table was rolled back or "
                f"restored; {BEGIN_ANEW}"
            )
        raise UnavailableError(
            f"{where}: the instant {done}, which was read last, isn't on the timeline any more: instants were archived "
            f"that weren't read yet, or the table was replaced; keep more of them (hoodie.keep.min.commits), and "
            f"{BEGIN_ANEW}"
        )
    # A compaction may complete long after it was planned, which holds nothing up in tables of version 8.
    late = [
        instant.at
        for instant in timeline.done
        if recent[0] < instant.at < done and instant.at not in recent and not instant.is_compaction
    ]
    if late:
        raise UnavailableError(
            f"{where}: the instant {late[0]} has appeared after the later one {done} was read, so the clocks of its "
            f"writers differ; {BEGIN_ANEW}"
        )
    return [instant for instant in timeline.readable if instant.at > done]


def recent_of(timeline: Timeline, done: str) -> list[str]:
    """Return what `unread` needs to know later, when instants up to `done` are read."""
    return [instant.at for instant in timeline.done if instant.at <= done][-RECENT:]
