"""Markers: records without a row that show how far a job is.

A marker is written to every partition of a topic. A job in real-time mode passes it through all of its tasks, behind
the rows that came before it, and writes *arrivals* to every partition of its output topic. Once all arrivals of a
marker are on the output topic, all results of rows before the marker are there too, before the arrivals.

Markers aren't stored: indexes skip both kinds of records, and so do jobs in micro-batch mode, which report their
positions themselves.
"""

import hashlib
from dataclasses import dataclass

# MessagePack never begins with the byte c1, so the key of a row can't be equal to one of these.
MARKER_KEY = b"\xc1caraway.marker"
ARRIVAL_KEY = b"\xc1caraway.arrival"

# The size of a marker's value, which is a random token. Each wait recognizes its own markers by their token.
TOKEN_BYTES = 16
# An arrival's path consists of numbers of this size: first the partition from which the marker was read, then each task
# that passed it on.
STEP_BYTES = 4
# The size of the number `Arrival.copies` in the value of an arrival.
COPIES_BYTES = 4
# The size of a job's tag: the first bytes of the SHA-256 of its id.
JOB_BYTES = 8

# Each stateful step of a job multiplies the copies of a marker by the number of its tasks. More copies than this, such
# as the 4,096 of six steps with four tasks each, would cost as much as rows do. So a job with more copies drops
# markers, and its position is known from its checkpoints.
MAX_COPIES = 1_024


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record on the output topic of a job, which shows that a marker has passed through the job.

    Attributes:
        token: The random value of the marker.
        job: The first bytes of the SHA-256 of the job's id.
        copies: How many arrivals each marker has in each partition of the output topic.
        path: The partition of the marker and the tasks that passed it on; no two arrivals have the same path.
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
    """Return the bytes by which a job is identified in its arrivals."""
    return hashlib.sha256(job_id.encode()).digest()[:JOB_BYTES]


def decode_arrival(value: bytes) -> Arrival | None:
    """Return the arrival in the value of a record with the key `ARRIVAL_KEY`; None if the value isn't one."""
    head = COPIES_BYTES + JOB_BYTES
    if len(value) < head + TOKEN_BYTES + STEP_BYTES:
        return None
    return Arrival(
        copies=int.from_bytes(value[:COPIES_BYTES], "big"),
        job=value[COPIES_BYTES:head],
        token=value[head : head + TOKEN_BYTES],
        path=value[head + TOKEN_BYTES :],
    )
