"""Tests of power failures of Kafka's brokers: no event that was acknowledged is lost if other machines have it."""

import time
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from caraway.apps.stack.jars import ensure_jars
from caraway.dataplane.topics.admin import BrokerAdmin, ensure_topics
from caraway.process.settings.settings import load_settings
from tests.services.power import powered
from tests.services.three_brokers import ThreeBrokers, read_numbers, write_numbers
from tests.timeouts import deadline_in, scaled

TOPIC = "orders"
PARTITIONS = [0, 1, 2]
# The events that are acknowledged before the failure, and at least in all.
BEFORE, ALL = 500, 1_000
CUT = 2


def test_no_acknowledged_event_is_lost_when_one_of_three_brokers_loses_power(tmp_path: Path) -> None:
    """The broker comes back with less than it had acknowledged, and leads a partition again once it has everything."""
    cluster = ThreeBrokers(tmp_path / "brokers", ensure_jars(load_settings()))
    with powered(cluster.folder(CUT)) as power:
        try:
            cluster.start(1, 2, 3)
            ensure_topics(cluster.bootstrap_servers, [TOPIC], len(PARTITIONS))

            def lose_power() -> None:
                cluster.kill(CUT)
                power.cut()

            written = write_numbers(cluster.bootstrap_servers, TOPIC, before=BEFORE, least=ALL, harm=lose_power)
            assert _events_on_disk(cluster) < BEFORE
            cluster.start(CUT)
            _have_it_lead(cluster.bootstrap_servers)
            found = read_numbers(cluster.bootstrap_servers, TOPIC, PARTITIONS)
            assert written.acknowledged - found == set()
        finally:
            cluster.stop()


def _events_on_disk(cluster: ThreeBrokers) -> int:
    """Return at most how many events the broker has that lost its power: a batch has at least 60 bytes."""
    return sum(log.stat().st_size for log in cluster.folder(CUT).glob(f"data/{TOPIC}-*/*.log")) // 60


def _have_it_lead(servers: str) -> None:
    """Wait until all replicas are in sync, and have each partition led by the broker that led it first."""
    admin, client = BrokerAdmin(servers), AdminClient({"bootstrap.servers": servers})
    deadline = deadline_in(120)
    while True:
        found = admin.cluster(scaled(30)).topics[TOPIC].partitions.values()
        if all(len(partition.isrs) == 3 for partition in found):
            if CUT in [partition.leader for partition in found]:
                return
            asked = [TopicPartition(TOPIC, number) for number in PARTITIONS]
            client.elect_leaders(ElectionType.PREFERRED, asked).result(scaled(30))
        assert time.monotonic() < deadline, [(partition.leader, partition.isrs) for partition in found]
        time.sleep(0.1)
