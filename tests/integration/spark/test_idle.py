"""Tests that an idle job in micro-batches polls Kafka at most ten times a second."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import jvm_of
from caraway.dataplane.streams.spark.jobs import Trigger, start_job
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.shop import Shop
from tests.timeouts import deadline_in

LOOKS = 20
# The delay between polls in the session (`spark.sql.streaming.pollingDelay`). Spark's own is a tenth of it.
DELAY_SECONDS = 0.1
# The requests of one poll: Spark's source reads the partitions of its topics, and then their ends.
REQUESTS = 3


def requests_of_sources(spark: SparkSession) -> float:
    """Return how many requests the admin clients of all of Spark's Kafka sources have made."""
    jvm = jvm_of(spark)
    pattern = jvm.javax.management.ObjectName("kafka.admin.client:type=admin-client-metrics,*")
    names = _ask(spark, "queryNames", {"javax.management.ObjectName": pattern, "javax.management.QueryExp": None})
    found = (
        _ask(spark, "getAttribute", {"javax.management.ObjectName": name, "java.lang.String": "request-total"})
        for name in names.toArray()
    )
    return sum(map(float, found))


def _ask(spark: SparkSession, method: str, arguments: Mapping[str, object]) -> Any:
    """Call a method of the JVM's MBean server, through its interface, since its class isn't open to reflection."""
    jvm = jvm_of(spark)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    types = gateway.new_array(jvm.java.lang.Class, len(arguments))
    values = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for place, (name, value) in enumerate(arguments.items()):
        types[place], values[place] = jvm.java.lang.Class.forName(name), value
    interface = jvm.java.lang.Class.forName("javax.management.MBeanServer")
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    return interface.getMethod(method, types).invoke(beans, values)


def test_an_idle_job_asks_seldom(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    shop = Shop("-idle")
    orders, prices = model.traffic(seed=8, count=60)
    job = shop.doubled()
    broker.create(shop.orders, shop.prices, job.output)
    broker.send(shop.orders, orders)
    query = start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=tmp_path / "checkpoint",
        checkpoint_interval_seconds=5,
        trigger=Trigger.MICRO_BATCH,
    )
    try:
        expected = model.expected_of(job, orders, prices)
        assert broker.receive(job.output, expected) == expected
        # No other query runs in this session, so all requests are of this one.
        assert [active.runId for active in spark.streams.active] == [query.runId]
        deadline, begin, before = deadline_in(60), time.monotonic(), requests_of_sources(spark)
        while (asked := requests_of_sources(spark) - before) < LOOKS * REQUESTS:
            assert time.monotonic() < deadline, f"it has asked {asked} times"
            time.sleep(0.02)
        passed = time.monotonic() - begin
    finally:
        query.stop()
    # On a busy machine the time is only longer.
    assert passed > asked / REQUESTS * DELAY_SECONDS * 0.8, f"{asked} requests in {passed:.2f} s"
