"""Tests of power failures of Kafka's brokers: no event that was acknowledged is lost if other machines have it."""

import itertools
import time
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from caraway.apps.stack.jars import ensure_jars
from caraway.dataplane.topics.admin import BrokerAdmin, ensure_topics
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.process.settings.settings import load_settings
from tests.services.power import powered
from tests.services.three_brokers import ThreeBrokers, read_numbers
from tests.timeouts import deadline_in, scaled

TOPIC = "orders"
PARTITIONS = [0, 1, 2]
BATCH, UNDER_WAY = 20, 8
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
            acknowledged: set[int] = set()
            numbers = itertools.count()
            with TopicWriter(cluster.bootstrap_servers, timeout_s=scaled(60)) as writer:
                is_cut = False
                while len(acknowledged) < ALL:
                    batches = [[next(numbers) for _ in range(BATCH)] for _ in range(UNDER_WAY)]
                    writes = [writer.write(TOPIC, [(b"%d" % n, b"%d" % n, None) for n in batch]) for batch in batches]
                    if len(acknowledged) >= BEFORE and not is_cut:
                        # These batches are on their way.
                        cluster.kill(CUT)
                        power.cut()
                        is_cut = True
                    for batch, write in zip(batches, writes, strict=True):
                        try:
                            write.result(scaled(120))
                        except UnavailableError:
                            continue
                        acknowledged.update(batch)
            assert _events_on_disk(cluster) < BEFORE
            cluster.start(CUT)
            _have_it_lead(cluster.bootstrap_servers)
            found = read_numbers(cluster.bootstrap_servers, TOPIC, PARTITIONS)
            assert acknowledged - found == set()
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
