"""Spark's log has the errors that somebody can do something about."""

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import jvm_of

INBOX = "org.apache.spark.rpc.netty.Inbox"


@pytest.mark.parametrize(
    ("message", "outcome"),
    [("Ignoring error", "DENY"), ("An error happened while processing message in the inbox", "NEUTRAL")],
)
def test_what_spark_ignores_is_not_logged(spark: SparkSession, message: str, outcome: str) -> None:
    log4j = jvm_of(spark).org.apache.logging.log4j
    logger = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig(INBOX)
    assert logger.getName() == INBOX
    event = log4j.core.impl.Log4jLogEvent.newBuilder()
    event = event.setMessage(log4j.message.SimpleMessage(message)).setLevel(log4j.Level.ERROR).build()
    assert logger.getFilter().filter(event).toString() == outcome
