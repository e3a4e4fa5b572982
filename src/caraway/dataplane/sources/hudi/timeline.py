"""The timeline of a Hudi table: the instants that have completed, in the order in which Hudi applies them.

A timeline is a folder of small files, one for each state of an instant. Their names have the time at which the instant
was requested, by which `hudi` finds the rows as of an instant. The library lists no instants that are under way, so the
names are listed here (https://hudi.apache.org/tech-specs-1point0/#timeline). An instant is known by that time, as Hudi
writes it; instants are in the order of these texts.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW
from caraway.errors import UnavailableError

# <requested>.commit in tables of version 6, <requested>_<completed>.commit in those of version 8.
NAME = re.compile(r"^(\d{14,17})(?:_\d{14,17})?\.([a-z.]+)$")
# The actions that may change rows. A clustering completes as a replacecommit.
CHANGES = frozenset({"commit", "deltacommit", "replacecommit"})
# While an instant with one of these actions is under way, no later instant is read. Otherwise it could complete when a
# later instant was read already, and its rows would be missed.
BLOCKING = CHANGES | {"clustering"}
# How many instants before the last one are remembered, to notice one that completes too late.
RECENT = 100


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of a table.

    Attributes:
        done: Those that have completed and may have changed rows, in order.
        readable: Those of them that aren't behind an instant under way.
    """

    done: Sequence[str]
    readable: Sequence[str]


def timeline_of(names: Iterable[str]) -> Timeline:
    """Return the timeline of a table from the names of the files in its folder."""
    done: set[str] = set()
    begun: set[str] = set()
    for match in filter(None, map(NAME.match, names)):
        at, kind = match.groups()
        action, _, state = kind.rpartition(".")
        if state in CHANGES and not action:
            done.add(at)
        # The first file of a commit under way has no action in its name.
        elif state in {"requested", "inflight"} and (action or "commit") in BLOCKING:
            begun.add(at)
    ordered, pending = sorted(done), min(begun - done, default="~")
    return Timeline(done=ordered, readable=[at for at in ordered if at < pending])


def unread(timeline: Timeline, done: str, recent: Sequence[str], where: str) -> list[str]:
    """Return the instants behind one that was read, in order.

    Args:
        timeline: The timeline.
        done: The instant that was read last.
        recent: The instants up to that one that were on the timeline then, the last ones of them in order.
        where: The table, for people.

    Raises:
        UnavailableError: Instants may be missing: the one that was read is gone, or one has completed too late.
    """
    if done not in timeline.done:
        if any(at < done for at in timeline.done):
            raise UnavailableError(
                f"{where}: the instant {done}, which was read last, is gone, since the table was rolled back or "
                f"restored; {BEGIN_ANEW}"
            )
        raise UnavailableError(
            f"{where}: the instant {done}, which was read last, isn't on the timeline any more: instants were archived "
            f"that weren't read yet, or the table was replaced; keep more of them (hoodie.keep.min.commits), and "
            f"{BEGIN_ANEW}"
        )
    late = [at for at in timeline.done if recent[0] < at < done and at not in recent]
    if late:
        raise UnavailableError(
            f"{where}: the instant {late[0]} has appeared after the later one {done} was read, so the clocks of its "
            f"writers differ; {BEGIN_ANEW}"
        )
    return [at for at in timeline.readable if at > done]


def recent_of(timeline: Timeline, done: str) -> list[str]:
    """Return what `unread` needs to know later, when instants up to `done` are read."""
    return [at for at in timeline.done if at <= done][-RECENT:]
