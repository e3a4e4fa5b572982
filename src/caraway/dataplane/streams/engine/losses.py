"""The epochs of leaders that a job's checkpoint has beside Spark's offsets, by which lost records are noticed.

Spark keeps offsets only. So the engine notes the epochs of the leaders of a job's topics every few seconds, in a file
in the folder of the checkpoint: for the topics that the job reads, the epoch in which they had all records before the
job's position; for the topic that it writes, the epoch and the end, since the rows before it may be lost as well.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from caraway.dataplane.streams.engine.damage import put_aside
from caraway.dataplane.topics.positions import LedEnd, Offsets, TopicEnds
from caraway.dataplane.topics.truncation import Continuation, Reached, continuations
from caraway.errors import UnavailableError
from caraway.graph.plan.model import JobPlan

log = logging.getLogger(__name__)

FILE = "leader-epochs.json"
STARTS_ANEW = "The job begins at the beginning of its topics, which gives the rows again that are left"

# The ends of partitions with the epochs of their leaders, by topic.
LedEnds = Mapping[str, Mapping[int, LedEnd]]


def steady(before: LedEnds, now: LedEnds) -> dict[str, dict[int, LedEnd]]:
    """Return the ends of now of the partitions whose leaders' epoch was the same at an earlier look.

    In the time between the looks these have lost nothing.
    """
    return {
        topic: {p: end for p, end in ends.items() if end.epoch >= 0 and end.epoch == _epoch(before, topic, p)}
        for topic, ends in now.items()
    }


def reached(positions: Offsets, written: Iterable[str], ends: LedEnds) -> dict[str, Reached]:
    """Return how far a job has come on its topics.

    Args:
        positions: Its positions on the topics that it reads, which it reached between the looks of `steady`.
        written: The topics that it writes.
        ends: The ends from `steady`.
    """
    found: dict[str, Reached] = {}
    for topic, offsets in positions.items():
        known = {p: end.epoch for p, end in ends.get(topic, {}).items() if offsets.get(p, end.offset + 1) <= end.offset}
        found[topic] = Reached({p: offsets[p] for p in known}, known)
    for topic in written:
        known = {p: end.epoch for p, end in ends.get(topic, {}).items()}
        found[topic] = Reached({p: ends[topic][p].offset for p in known}, known)
    return {topic: each for topic, each in found.items() if each.epochs}


def note(checkpoint: Path, topics: Mapping[str, Reached]) -> None:
    """Write how far a job has come into its checkpoint, if this has a committed batch; see `reached`.

    Other partitions keep their notes, also those at the noted offset: they were there in the noted epoch already, and a
    later leader may have lost what is before it. If the disk is full, all do: a loss is then found by older ones, and
    the engine goes on.
    """
    if not topics or not (checkpoint / "commits").is_dir():
        return
    known = noted(checkpoint)
    for topic, each in topics.items():
        before = known.get(topic, Reached({}, {}))
        moved = {p: at for p, at in each.offsets.items() if before.offsets.get(p) != at}
        known[topic] = Reached({**before.offsets, **moved}, {**before.epochs, **{p: each.epochs[p] for p in moved}})
    text = json.dumps(
        {t: {str(p): [at, each.epochs[p]] for p, at in each.offsets.items()} for t, each in known.items()}
    )
    scratch = checkpoint / f"{FILE}.tmp"
    # Another engine's copy of the checkpoint may share this file by a hard link, so the file is replaced and never
    # changed in place.
    try:
        scratch.write_text(text)
        scratch.replace(checkpoint / FILE)
    except OSError as error:
        log.warning("the epochs of %s can't be noted: %s", checkpoint.name, error)


def noted(checkpoint: Path) -> dict[str, Reached]:
    """Return what was noted in a checkpoint; nothing if the file isn't there, or was damaged by a crash."""
    try:
        found = json.loads((checkpoint / FILE).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {
        topic: Reached({int(p): at for p, (at, _) in ends.items()}, {int(p): epoch for p, (_, epoch) in ends.items()})
        for topic, ends in found.items()
    }


def losses(bootstrap_servers: str, checkpoint: Path, positions: Offsets) -> list[Continuation]:
    """Return the topics of a job that lack records which it has read or written.

    A position that has moved on since it was noted last counts with the epoch from then: if the leader has changed
    since, the job may begin anew although nothing is lost, which only takes time.

    Args:
        bootstrap_servers: The brokers, "host:port".
        checkpoint: The folder of the job's checkpoint.
        positions: The positions of the checkpoint on the topics that the job reads.

    Raises `UnavailableError` if the brokers don't answer.
    """
    known = noted(checkpoint)
    asked = {
        topic: Reached(positions.get(topic, known.get(topic, Reached({}, {})).offsets), each.epochs)
        for topic, each in {**{topic: Reached({}, {}) for topic in positions}, **known}.items()
    }
    found = continuations(bootstrap_servers, asked)
    if missing := asked.keys() - found.keys():
        raise UnavailableError(f"it isn't known yet what the topics have that the job has read: {', '.join(missing)}")
    return [place for place in found.values() if place.lost]


def require_intact(
    bootstrap_servers: str,
    plan: JobPlan,
    checkpoint: Path,
    positions: Offsets,
    note_loss: Callable[[JobPlan, str, str], object],
) -> None:
    """Put a job's checkpoint aside if its topics lack records that the job has read or written.

    Args:
        bootstrap_servers: The brokers, "host:port".
        plan: The job.
        checkpoint: The folder of its checkpoint.
        positions: Its positions on the topics that it reads.
        note_loss: Called with the job, each such topic, and a text for the operator.

    Raises `UnavailableError` if the checkpoint was put aside, so that the next start begins anew, or if the brokers
    don't answer.
    """
    told, known = [], noted(checkpoint)
    for place in losses(bootstrap_servers, checkpoint, positions):
        up_to = known.get(place.topic, Reached({}, {})).offsets
        certain = any(offset < up_to.get(partition, 0) for partition, offset in place.lost.items())
        told.append(place.told(f"the job {plan.job_id}", STARTS_ANEW, certain=certain))
        note_loss(plan, place.topic, told[-1])
    if told:
        raise UnavailableError(put_aside(checkpoint, "; ".join(told), because="is ahead of its topics"))
    # The topics were just found to have all records before these positions, so the positions are noted with the
    # leaders' present epochs.
    ends = TopicEnds(bootstrap_servers).led_ends([*positions, plan.output.name])
    note(checkpoint, reached(positions, [plan.output.name], ends))


def _epoch(ends: LedEnds, topic: str, partition: int) -> int | None:
    found = ends.get(topic, {}).get(partition)
    return None if found is None else found.epoch
