"""Three real brokers, of which one loses its disk under load."""

import itertools
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from caraway.apps.stack.jars import ensure_jars
from caraway.dataplane.topics.admin import ONE_SUFFICES, BrokerAdmin, ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.process.settings.settings import load_settings
from tests.services.three_brokers import read_numbers, three_brokers
from tests.timeouts import scaled

TOPIC = "orders"
BATCH = 20
# The events that are acknowledged before the disk is lost, and those after it.
BEFORE, AFTER = 2_000, 2_000
# The batches that are under way at a time.
UNDER_WAY = 8


@pytest.mark.full(reason="three brokers; topics/test_secured.py has what is told of one replica")
@pytest.mark.timeout(600)
def test_no_acknowledged_event_is_lost_with_the_disk_of_a_leader(tmp_path: Path) -> None:
    with three_brokers(tmp_path, ensure_jars(load_settings())) as cluster:
        servers = cluster.bootstrap_servers
        ensure_topics(servers, [TOPIC, DEAD_LETTERS], 3)
        admin = BrokerAdmin(servers)
        partitions = admin.cluster(30).topics[TOPIC].partitions
        assert [len(partition.replicas) for partition in partitions.values()] == [3, 3, 3]
        assert admin.warning == ""
        (config,) = admin.client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
        assert config.result(30)["min.insync.replicas"].value == "2"
        least = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        weak = ConfigResource(ConfigResource.Type.TOPIC, DEAD_LETTERS, incremental_configs=[least])
        (changed,) = admin.client.incremental_alter_configs([weak]).values()
        changed.result(30)
        told = BrokerAdmin(servers)
        assert told.problem() is None
        assert told.warning == ONE_SUFFICES
        acknowledged: list[int] = []
        failed = 0
        numbers = itertools.count()
        with TopicWriter(servers, timeout_s=scaled(60)) as writer:
            taken = False
            while len(acknowledged) < BEFORE + AFTER:
                batches = [[next(numbers) for _ in range(BATCH)] for _ in range(UNDER_WAY)]
                writes = [writer.write(TOPIC, [(b"%d" % n, b"%d" % n, None) for n in batch]) for batch in batches]
                if len(acknowledged) >= BEFORE and not taken:
                    # These batches are on their way.
                    cluster.take_away(partitions[0].leader)
                    taken = True
                for batch, write in zip(batches, writes, strict=True):
                    try:
                        write.result(scaled(120))
                    except UnavailableError:
                        failed += 1
                    else:
                        acknowledged += batch
            assert taken
        found = read_numbers(servers, TOPIC, list(partitions))
        assert set(acknowledged) - found == set()
        # The client went on: few writes failed, if any.
        assert failed <= 2 * UNDER_WAY
