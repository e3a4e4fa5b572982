"""A bounded webhook on a real server: its source ends, later rows are ignored, and a restart changes nothing."""

from collections.abc import Callable
from datetime import datetime

from caraway import dataset, field, meta
from caraway.connectors import Webhook, source
from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess, eventually, records

hook = Webhook(name="bounded")


@meta(owner="a@b.co")
@source(hook.endpoint("visits"), disorder="1h", cdc="append", bounded=True, idleness="2s")
@dataset
class Visits:
    hive: str
    at: datetime = field(timestamp=True)


def state(server: ServerProcess) -> str:
    (found,) = server.http.get("/status").json()["sources"]
    return str(found["state"])


def log(server: ServerProcess, hive: str) -> dict[str, object]:
    rows = [{"hive": hive, "at": 1_700_000_000}]
    answer = server.http.post("/log", json={"webhook": "bounded", "endpoint": "visits", "data": rows})
    answer.raise_for_status()
    found: dict[str, object] = answer.json()
    return found


def test_a_bounded_webhook_ends_and_stays_closed(own_server: Callable[[], ServerProcess], kafka: str) -> None:
    server = own_server()
    server.commit(Graph(datasets=(Visits.to_spec(),)))
    assert log(server, "a")["warnings"] == []
    topic = server.topic("Visits")
    eventually(lambda: state(server) == "closed", server.said)
    assert "bounded and has ended" in str(log(server, "b")["warnings"])
    assert 'caraway_source_open{dataset_name="Visits",source_name="bounded"} 0.0' in server.http.get("/metrics").text
    server.kill()
    server = own_server()
    assert "bounded and has ended" in str(log(server, "c")["warnings"])
    (record,) = records(kafka, topic)
    assert b"a" in record
