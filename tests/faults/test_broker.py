"""The broker is killed while rows pour in, and comes back: nothing acknowledged is lost, nothing is there twice."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from caraway.errors import UnavailableError
from caraway.plan.model import TopicPlan
from caraway.topics.codec import RecordCodec
from caraway.topics.producer import TopicWriter
from tests.faults.conftest import Traffic
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker, Sent

KILLS = 4
LOT = 5
TIMEOUT_S = 240.0


@dataclass
class Sender:
    """Writes rows in small lots, one after the other, each until it is acknowledged."""

    writer: TopicWriter
    lots: Sequence[tuple[TopicPlan, Sequence[Sent]]]
    refused: int = 0
    _acknowledged: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        for topic, rows in self.lots:
            while not self._written(topic, rows):
                self.refused += 1
            with self._changed:
                self._acknowledged += 1
                self._changed.notify_all()

    def wait_for(self, lots: int) -> None:
        """Wait until so many lots are acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._acknowledged >= lots, TIMEOUT_S)

    def _written(self, topic: TopicPlan, rows: Sequence[Sent]) -> bool:
        codec = RecordCodec(topic.schema)
        items = [
            (
                codec.encode_key(row.key),
                codec.encode_value(
                    op=row.op,
                    time_us=row.time_us,
                    ingested_us=row.ingested_us,
                    row=row.row,
                    record_id=row.record_id,
                    rev=None,
                ),
                None,
            )
            for row in rows
        ]
        try:
            self.writer.write(topic.name, items).result(TIMEOUT_S)
        except UnavailableError:
            # Some of the rows may have been written: their ids tell that they are the same.
            return False
        return True


def _lots(traffic: Traffic) -> list[tuple[TopicPlan, Sequence[Sent]]]:
    def cut(topic: TopicPlan, sent: Sequence[Sent]) -> list[tuple[TopicPlan, Sequence[Sent]]]:
        return [(topic, sent[at : at + LOT]) for at in range(0, len(sent), LOT)]

    orders, prices = cut(traffic.shop.orders, traffic.orders), cut(traffic.shop.prices, traffic.prices)
    # Three orders come with a price.
    return [lot for at in range(len(prices)) for lot in (*orders[3 * at : 3 * at + 3], prices[at])]


@contextmanager
def _sending(broker: Broker, traffic: Traffic) -> Iterator[Sender]:
    # With short timeouts: while the broker is away, writes fail and are tried again.
    with TopicWriter(broker.bootstrap_servers, timeout_s=2.0) as writer:
        sender = Sender(writer, _lots(traffic))
        thread = threading.Thread(target=sender.run, name="sender", daemon=True)
        thread.start()
        yield sender
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_a_broker_that_is_killed_under_load_loses_and_doubles_nothing(
    rig: Rig, broker: Broker, traffic: Traffic
) -> None:
    named = replace(traffic, orders=model.named(traffic.orders), prices=model.named(traffic.prices))
    rig.want(traffic.jobs)
    rig.start()
    rig.wait_until_running(len(traffic.jobs), TIMEOUT_S)
    with _sending(broker, named) as sender:
        for kill in range(1, KILLS + 1):
            # The next lot is on its way, and what the jobs make of those before.
            sender.wait_for(kill * len(sender.lots) // (KILLS + 1))
            broker.kill()
            broker.start()
        sender.wait_for(len(sender.lots))
    named.agree(rig)
    rig.wait_until_running(len(traffic.jobs), TIMEOUT_S)
