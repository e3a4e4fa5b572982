"""The settings with which indexes consume topics."""

from caraway.dataplane.topics.reader import COMMON, Reading

# For topics whose records are indexed as they come. librdkafka fetches no more records of a partition while 2,000 wait
# in the consumer's queue, and none at all while 1 MiB waits. All topics share the queue, so a fresh record comes behind
# the waiting records of all topics. A batch of 500 is applied in some 10 ms.
FRESH = Reading(
    COMMON
    | {
        "queued.min.messages": 2000,
        "queued.max.messages.kbytes": 1024,
        "fetch.message.max.bytes": 256 * 1024,
    },
    batch=500,
)

# For topics with a backlog. The consumer should always have records ready; its queue takes 16 MiB at most, and a fetch
# 1 MiB of each partition. Large batches are faster for each record: keys repeat in them, and a batch changes each tile
# only once. A record of a thousand keys takes 16.7 us in batches of 10,000, 11.5 us in batches of 30,000 and 10.4 us in
# batches of 60,000; a batch of 30,000 takes less than half a second.
BACKLOG = Reading(
    COMMON
    | {
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.message.max.bytes": 1024 * 1024,
        # Without these settings the broker would answer a fetch for each new message. It answers once there are 256
        # KiB, or after 25 ms, which takes less time of both sides for each record.
        "fetch.min.bytes": 256 * 1024,
        "fetch.wait.max.ms": 25,
    },
    batch=30_000,
)

# A topic is left to the thread for backlogs when more than `BEHIND` of its records wait, and taken back when at most
# `CAUGHT_UP` do. The numbers differ, because a move costs some fetches: a topic with a steady high rate shouldn't move
# to and fro.
BEHIND, CAUGHT_UP = 2000, 500
