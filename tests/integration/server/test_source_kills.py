"""Sources of all kinds, with a million rows, while server, broker and system are killed: each row is taken once."""

# mypy: disable-error-code="attr-defined"

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import orjson
import pytest

from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.specs import Graph
from caraway.process.settings.connectors import SourcesSettings
from tests.integration.server.killed_systems import REFUSED, SYSTEMS
from tests.integration.server.kills import kill_at_random
from tests.integration.server.server_process import ServerProcess, end_of, eventually, numbers_of, records
from tests.integration.server.test_file_sources import readings
from tests.integration.spark.broker import Broker

# The times at which rows come.
PARTS = 20
# The places of systems in the specification.
SPEC = {"postgres": "connectors:11:2", "mysql": "connectors:11:3", "kinesis": "connectors:11:15"}
SPEC |= {"kafka": "connectors:11:6", "pubsub": "connectors:11:16"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spec(SPEC[name])] if name in SPEC else []) for name in SYSTEMS]
)
def test_each_row_is_taken_once_whatever_is_killed(
    apart: Callable[..., tuple[ServerProcess, Broker]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # A server has an identity of its own for AWS.
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    with SYSTEMS[name](tmp_path / "system") as system, ThreadPoolExecutor(1) as thread:
        server, broker = apart(sources=SourcesSettings(endpoints=system.endpoints, local_folders=(str(tmp_path),)))
        kafka = broker.bootstrap_servers
        defined = readings(system.connector(kafka), every=system.every, disorder=system.disorder)

        def put_all() -> None:
            for first in range(0, system.total, system.total // PARTS):
                system.put(range(first, first + system.total // PARTS))

        if system.is_filled_first:
            put_all()
        server.commit(Graph(datasets=(defined.to_spec(),)))
        topic = server.made_topic("Measured")
        # The source begins with the first read.
        eventually(lambda: server.source()["polled_at"], server.said)
        putting = thread.submit(lambda: None if system.is_filled_first else put_all())
        refused = Counter(range(REFUSED - 1, system.total, REFUSED) if system.refuses else ())
        wanted = Counter(range(system.total)) - refused
        victims: dict[str, Callable[[], object]] = {} if system.restart is None else {"system": system.restart}
        kills = kill_at_random(
            server,
            broker,
            lambda: putting.done() and end_of(kafka, topic) >= wanted.total(),
            chosen=Random(name),
            pause_s=system.pause_s,
            others=victims,
        )
        putting.result()
        # A row that comes twice may come after all those that are awaited. Tables don't know how far they lag behind.
        eventually(lambda: system.every is not None or server.source()["lag"] == 0, server.said, seconds=600)
        eventually(lambda: server.source()["state"] == "reading", server.said)
        assert all(kills[victim] for victim in ("server", "broker", *victims)), kills
        found = numbers_of(kafka, topic)
        # The whole counts would take pytest hours to compare.
        wrong = sorted(number for number in found | wanted if found[number] != wanted[number])
        assert not wrong, (len(wrong), wrong[:5], wrong[-5:], kills, server.said())

        def letters() -> Counter[int]:
            # The cells of CSV are texts.
            return Counter(int(orjson.loads(value)["row"]["n"]) for value in records(kafka, DEAD_LETTERS))

        eventually(lambda: letters().total() >= refused.total(), server.said)
        assert letters() == refused
