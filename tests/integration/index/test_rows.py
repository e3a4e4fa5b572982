"""Rows of aggregates on a real topic, through kills of the index at any moment and the loss of its database."""

import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caraway.index.feeding.worker import IndexWorker
from caraway.index.storage.store import IndexStore
from caraway.topics.producer import TopicWriter
from tests.integration.index.flow import TIMEOUT_S, wait_for
from tests.integration.index.rows import CASES, Events

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore:aggregate")


def settle(broker: str, folder: Path, events: list[Events]) -> None:
    """Run an index until it has read all events."""
    with IndexStore(folder) as store:
        worker = IndexWorker(broker, store)
        worker.start()
        try:
            worker.set_plans([flow.plan for flow in events])
            wait_for(
                lambda: (
                    {s.topic: sum(s.offsets.values()) for s in worker.positions()}
                    == {flow.plan.topic: flow.sent for flow in events}
                ),
                "all events",
            )
        finally:
            worker.stop()


@pytest.mark.timeout(600)
def test_kills_neither_lose_nor_double_rows(kafka: str, tmp_path: Path) -> None:
    label, folder = secrets.token_hex(4), tmp_path / "index"
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        events = [Events(name, label, writer, kafka) for name in CASES]
        command = [sys.executable, "-m", "tests.integration.index.emitting_process", kafka, str(folder), label]
        for delay_s in (0.3, 0.1, 0.2):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                for flow in events:
                    flow.send(60)
                time.sleep(delay_s)
                process.kill()
        settle(kafka, folder, events)
        records = [flow.check() for flow in events]
        assert all(records)
        # Everything is on the topic, so another start sends nothing.
        settle(kafka, folder, events)
        assert [flow.check() for flow in events] == records
        # Without its database the index recovers from the topic what it has sent.
        shutil.rmtree(folder)
        for flow in events:
            flow.send(20)
        settle(kafka, folder, events)
        for flow in events:
            flow.check()
