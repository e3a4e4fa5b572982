import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caraway.apps.stack.ports import choose
from caraway.apps.stack.probe import check_engine, check_http, check_kafka, check_postgres


@contextmanager
def answering(reply: bytes, *, echo: slice | None = None, asked: list[bytes] | None = None) -> Iterator[int]:
    """Listen on a port and answer one request, which `asked` gets; with `echo`, these bytes of it begin the answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                request = connection.recv(1000)
                if asked is not None:
                    asked.append(request)
                connection.sendall((struct.pack(">i", 10) + request[echo] if echo else b"") + reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_kafka_that_answers() -> None:
    with answering(struct.pack(">h", 0), echo=slice(8, 12)) as port:
        assert check_kafka(f"127.0.0.1:{port}") is None


def test_one_broker_of_several_is_enough() -> None:
    with answering(struct.pack(">h", 0), echo=slice(8, 12)) as port:
        assert check_kafka(f"127.0.0.1:{choose()},127.0.0.1:{port}") is None


def test_kafka_that_is_something_else() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        reason = check_kafka(f"127.0.0.1:{port}")
    assert reason is not None
    assert str(port) in reason


def test_nobody_listens() -> None:
    port = choose()
    assert "refused" in (check_kafka(f"127.0.0.1:{port}") or "")
    assert "refused" in (check_http(f"http://127.0.0.1:{port}", None) or "")
    assert "refused" in (check_postgres(f"postgresql://u:p@127.0.0.1:{port}/d") or "")


def test_http_that_is_not_well() -> None:
    with answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nwait") as port:
        assert check_http(f"http://127.0.0.1:{port}", None) == "HTTP 503: wait"


def test_the_stack_shows_its_token_to_get_the_reasons(tmp_path: Path) -> None:
    token, asked = tmp_path / "token", list[bytes]()
    assert "No such file" in (check_http("http://127.0.0.1:1", token) or "")
    token.write_text("secret of the stack\n")
    with answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nkafka", asked=asked) as port:
        assert check_http(f"http://127.0.0.1:{port}", token) == "HTTP 503: kafka"
    assert b"authorization: bearer secret of the stack\r\n" in asked[0].lower()


def test_http_that_is_well() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as port:
        assert check_http(f"http://127.0.0.1:{port}", None) is None


def test_engine_heartbeats(tmp_path: Path) -> None:
    heartbeat = tmp_path / "engine.json"

    def beat(pid: int, age: float, *, ready: bool) -> str | None:
        content = {"pid": pid, "heartbeat_at_us": int((time.time() - age) * 1e6), "ready": ready, "jobs": {}}
        heartbeat.write_text(json.dumps(content))
        return check_engine(heartbeat, 7)

    assert "not written" in (check_engine(heartbeat, 7) or "")
    assert beat(7, 0, ready=True) is None
    assert "Spark is starting" in (beat(7, 0, ready=False) or "")
    assert "not written" in (beat(8, 0, ready=True) or "")
    assert "100 s ago" in (beat(7, 100, ready=True) or "")
    heartbeat.write_text("{")
    assert "can't be read" in (check_engine(heartbeat, 7) or "")
