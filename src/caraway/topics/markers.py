"""Markers: records without a row that show how far a job is.

A marker is written to every partition of a topic. A job in real-time mode takes it through all of its tasks, behind the
rows that came before it, and writes *arrivals* to every partition of its output topic. When all arrivals of a marker
are there, all that follows from the rows before the marker is on the output topic, before the arrivals.

Nothing is stored of markers: indexes pass over both kinds of records, and so do jobs in micro-batches, which tell their
positions themselves.
"""

import hashlib
from dataclasses import dataclass

# No MessagePack begins with the byte c1, so no key of a row can be equal to one of these.
MARKER_KEY = b"\xc1caraway.marker"
ARRIVAL_KEY = b"\xc1caraway.arrival"

# The value of a marker: random, so that two servers never use the same one.
TOKEN_BYTES = 16
# The number of the partition that a marker was read from, and of each task that took it further.
STEP_BYTES = 4
# How many copies of each marker of a partition arrive.
COPIES_BYTES = 4
# A job is named by the head of the SHA-256 of its id.
JOB_BYTES = 8

# Each step that keeps rows multiplies the copies of a marker by its tasks. A job with more than these, which takes five
# such steps on four cores, tells its position at its checkpoints only: more copies would cost what rows cost.
MAX_COPIES = 1_024


@dataclass(frozen=True, slots=True)
class Arrival:
    """A marker behind a job.

    Attributes:
        token: The marker.
        job: The head of the SHA-256 of the job's id.
        copies: How many arrivals there are of each marker in each partition of the output topic.
        path: The partition of the marker and the tasks that took it further; no two arrivals have the same one.
    """

    token: bytes
    job: bytes
    copies: int
    path: bytes

    @property
    def partition(self) -> int:
        """The partition of the marker."""
        return int.from_bytes(self.path[:STEP_BYTES], "big")


def is_marker(key: bytes | None) -> bool:
    """Return whether a record with this Kafka key is a marker or an arrival."""
    return key in {MARKER_KEY, ARRIVAL_KEY}


def job_tag(job_id: str) -> bytes:
    """Return what stands for a job in its arrivals."""
    return hashlib.sha256(job_id.encode()).digest()[:JOB_BYTES]


def decode_arrival(value: bytes) -> Arrival | None:
    """Return the arrival that a record with the key `ARRIVAL_KEY` is, None if its value is none."""
    head = COPIES_BYTES + JOB_BYTES
    if len(value) < head + TOKEN_BYTES + STEP_BYTES:
        return None
    return Arrival(
        copies=int.from_bytes(value[:COPIES_BYTES], "big"),
        job=value[COPIES_BYTES:head],
        token=value[head : head + TOKEN_BYTES],
        path=value[head + TOKEN_BYTES :],
    )
