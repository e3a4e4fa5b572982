"""The settings with which indexes consume topics."""

from caraway.dataplane.topics.reader import COMMON, Reading

# Settings for topics whose records are indexed as they come. librdkafka stops fetching from a partition while 2,000 of
# its records wait in the consumer's queue, and stops altogether while 1 MiB waits. All topics share the queue, so a
# fresh record is read only after all records that wait there; a short queue keeps that delay small. A batch of 500
# records is applied in some 10 ms.
FRESH = Reading(
    COMMON
    | {
        "queued.min.messages": 2000,
        "queued.max.messages.kbytes": 1024,
        "fetch.message.max.bytes": 256 * 1024,
    },
    batch=500,
)

# Settings for topics with a backlog. The consumer should always have records ready: its queue takes up to 16 MiB, and a
# fetch up to 1 MiB of each partition. A record takes less time in a large batch, because keys repeat there, and a batch
# changes each tile only once. A record of a thousand keys takes 16.7 us in batches of 10,000, 11.5 us in batches of
# 30,000 and 10.4 us in batches of 60,000; a batch of 30,000 takes less than half a second.
BACKLOG = Reading(
    COMMON
    | {
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.message.max.bytes": 1024 * 1024,
        # By default the broker answers a fetch as soon as there is a new message. With these settings it answers once
        # there are 256 KiB, or after 25 ms, which costs the broker and the consumer less time for each record.
        "fetch.min.bytes": 256 * 1024,
        "fetch.wait.max.ms": 25,
    },
    batch=30_000,
)

# The live thread leaves a topic to the thread for backlogs when more than `BEHIND` of its records wait, and takes the
# topic back when at most `CAUGHT_UP` wait. The numbers differ, so that a topic with a steady high rate doesn't move to
# and fro: each move costs some fetches.
BEHIND, CAUGHT_UP = 2000, 500
