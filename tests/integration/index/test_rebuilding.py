"""A database that is damaged while it is used is built anew; until it has caught up, all reads are refused."""

import secrets
from dataclasses import replace
from pathlib import Path

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.snapshots import Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from tests.integration.index.flow import PLANS, TIMEOUT_S, Flow, wait_for, wait_until_caught_up


def damage(folder: Path) -> None:
    """Change bytes of the tables, as a failing disk does."""
    for table in folder.glob("*.sst"):
        content = bytearray(table.read_bytes())
        for place in range(0, len(content), 64):
            content[place] ^= 0x55
        table.write_bytes(content)


def answers(flow: Flow, reader: IndexReader) -> bool:
    """Return whether all reads are answered, and check the answers."""
    try:
        flow.check(reader)
    except UnavailableError:
        return False
    return True


def test_damage_is_mended_while_the_topic_is_followed_and_read(kafka: str, tmp_path: Path) -> None:
    topic = f"index.{secrets.token_hex(6)}"
    ensure_topics(kafka, [topic], 2)
    snapshots = Snapshots(ObjectFolder(str(tmp_path / "objects")))
    with (
        TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer,
        # The cache is off, so that reads see the files on the disk.
        IndexStore(tmp_path / "index", restore=snapshots.restore, cache_bytes=0) as store,
    ):
        flow, reader = Flow(writer, topic), IndexReader(store)
        worker = IndexWorker(kafka, store)
        worker.start()
        try:
            worker.set_plans([replace(plan, topic=topic) for plan in PLANS])
            flow.send(2000)
            wait_until_caught_up(worker, topic, 2000)
            snapshots.take(store)
            flow.send(1000)
            wait_until_caught_up(worker, topic, 3000)
            flow.check(reader)
            for count in (1, 2):
                store.db.flush()
                damage(store.path)
                wait_for(lambda: not answers(flow, reader), "a read that finds the damage")
                wait_for(lambda: answers(flow, reader), "all that was there")
                assert len(list(tmp_path.glob("index.damaged-*"))) == count
                wait_for(lambda: worker.problem() is None and worker.is_alive(), "the end of it")
                flow.send(100)
                wait_until_caught_up(worker, topic, 3000 + 100 * count)
                flow.check(reader)
        finally:
            worker.stop()
