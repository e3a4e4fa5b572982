"""A reader of topics knows how many records it hasn't read yet, also of a topic that it reads for the second time."""

import secrets
import time
from contextlib import closing

from caraway.apps.stack import ports
from caraway.dataplane.index.feeding.consumption import FRESH
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dataplane.topics.reader import ENDS_S, TopicReader
from tests.integration.index.flow import TIMEOUT_S, wait_for
from tests.timeouts import scaled


def test_the_end_of_an_earlier_time_isn_t_taken_for_that_of_now(kafka: str) -> None:
    topic = f"reader.{secrets.token_hex(6)}"
    ensure_topics(kafka, [topic], 1)
    records = [(None, b"%d" % number, None) for number in range(100)]
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer, closing(TopicReader(kafka, FRESH)) as reader:
        writer.write(topic, records).result(TIMEOUT_S)
        reader.start(topic, {0: 0})
        assert reader.lag(topic) is None

        def reads_all() -> bool:
            reader.read(0.1)
            return reader.lag(topic) == 0

        wait_for(reads_all, "all to be read")
        reader.stop(topic)
        assert reader.lag(topic) is None
        writer.write(topic, records).result(TIMEOUT_S)
        # Another reader has read half of the new records meanwhile.
        reader.start(topic, {0: 150})
        deadline = time.monotonic() + 10 * ENDS_S
        while time.monotonic() < deadline:
            taken = reader.read(0.0)
            lag, read = reader.lag(topic), reader.positions(topic)
            assert read is not None
            assert lag in {None, 200 - read[0]}, (lag, read, taken)


def test_a_broker_that_is_away_is_waited_for_once_and_not_for_each_partition() -> None:
    with closing(TopicReader(f"127.0.0.1:{ports.choose()}", FRESH)) as reader:
        reader.start("away", dict.fromkeys(range(60), 0))
        started = time.monotonic()
        taken = reader.read(0.0)
        assert time.monotonic() - started < scaled(20)
        assert taken.messages == {}
        assert reader.lag("away") is None
