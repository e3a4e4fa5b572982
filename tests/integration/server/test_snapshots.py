"""Tests of a server whose index is lost, which starts with a snapshot, and of an index that is damaged at work."""

import shutil
import time
from pathlib import Path

from caraway.dataplane.index.storage.repair import DAMAGED
from caraway.dataplane.index.storage.snapshots import MANIFESTS
from tests.integration.server.server_process import ServerProcess, eventually
from tests.unit.compute.query import garden

# The tests share the broker with others, and so the topics of equal definitions; these pots are their own.
POT = 7_000_000


def test_a_lost_index_begins_with_a_snapshot_and_a_damaged_one_is_built_anew(
    kafka: str, postgres: str, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, snapshot_seconds=0.5)
    server.start()
    server.commit(garden.graph())
    bought = int(time.time()) - 3600

    def log(first: int, count: int) -> None:
        rows = [
            {"pot": pot, "species": f"s{pot}", "size": 1.0, "bought": bought} for pot in range(first, first + count)
        ]
        assert server.log("pots", rows).json()["accepted"] == count

    def species(*pots: int) -> object:
        return server.query(["State.species"], {"Tap.pot": list(pots)}).json().get("State.species")

    log(POT, 50)
    eventually(lambda: species(POT, POT + 49) == [f"s{POT}", f"s{POT + 49}"], server.said)
    folder = Path(server.settings.objects_url) / MANIFESTS
    since = time.time_ns() // 1000
    # This snapshot was begun after all rows were there; a further record makes it differ from the one before.
    log(POT + 50, 1)
    eventually(lambda: any(int(path.name.partition("-")[0]) > since for path in folder.glob("*.json")), server.said)
    server.kill()
    log_before = len(server.log_file.read_text())
    shutil.rmtree(server.settings.data_dir / "index")
    server.start()
    eventually(lambda: species(POT, POT + 50) == [f"s{POT}", f"s{POT + 50}"], server.said)
    log(POT + 51, 1)
    eventually(lambda: species(POT + 51) == [f"s{POT + 51}"], server.said)
    assert "the index begins with snapshot" in server.log_file.read_text()[log_before:], server.said()
    # The server has read only those records of the topic that are behind the snapshot.
    (index,) = [index for index in server.http.get("/status").json()["index"]["indexes"] if index["dataset"] == "Pots"]
    assert index["offsets"]["0"] >= 52
    assert index["written"] + index["unchanged"] <= 2

    # A read that finds a damaged table writes this file. The server isn't restarted.
    (server.settings.data_dir / "index" / DAMAGED).write_text("as a read said")

    def is_mended() -> bool:
        answer = server.query(["State.species"], {"Tap.pot": [POT, POT + 50, POT + 51]})
        if answer.status_code == 503:
            assert answer.json()["code"] == "unavailable"
            assert answer.headers["retry-after"]
        else:
            assert answer.json() == {"State.species": [f"s{POT}", f"s{POT + 50}", f"s{POT + 51}"]}
        return "has all that it had before it was damaged" in server.log_file.read_text()

    eventually(is_mended, server.said)
    eventually(lambda: server.health().status_code == 200, server.said)
    assert len(list(server.settings.data_dir.glob("index.damaged-*"))) == 1
    log(POT + 52, 1)
    eventually(lambda: species(POT, POT + 52) == [f"s{POT}", f"s{POT + 52}"], server.said)
    assert server.stop() == 0, server.said()
