"""Tests that a session's settings close it to other users of the machine."""

from pathlib import Path

import pytest

from caraway.dataplane.streams.functions.children import Limits, limits_of
from caraway.dataplane.streams.spark.session import SessionSettings, spark_conf
from caraway.process.confinement.policy import Confinement


@pytest.mark.parametrize(("master", "local"), [("local[4]", True), ("spark://driver:7077", False)])
def test_ports_ask_for_a_secret_and_there_is_no_web_page(master: str, *, local: bool) -> None:
    conf = spark_conf(SessionSettings(master=master, driver_memory="1g", jars=[], scratch=Path("/scratch")))
    assert conf["spark.ui.enabled"] == "false"
    # In local mode Spark makes the secret itself; on a cluster the cluster's settings have it.
    assert (conf.get("spark.authenticate") == "true") is local
    assert not any("secret" in key for key in conf)


def test_what_functions_may_do_travels_with_the_settings() -> None:
    confinement = Confinement(mode="required", network=True, readable=(Path("/models"),), environment=("MODEL",))
    limits = Limits(seconds=1.5, memory_mb=77, confinement=confinement)
    settings = SessionSettings(master="local", driver_memory="1g", jars=[], scratch=Path("/scratch"), functions=limits)

    class Session:
        conf = spark_conf(settings)

    assert limits_of(Session()) == limits  # type: ignore[arg-type] # has what is asked for
