"""The demo's connection waits for a server that has too much to do, for a bounded time."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from caraway.apps.demo.http import LONGEST_WAIT_SECONDS, PAUSE_SECONDS, DemoConnection
from caraway.errors import RemoteError, UnavailableError
from tests.unit.client.stub import Stub, running

BEHIND = (429, {"err_msg": "the index of Counts is behind", "code": "behind"})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def connect(stub: Stub, clock: Clock) -> DemoConnection:
    return DemoConnection(stub.url, clock=clock, sleep=clock.sleep)


def test_a_request_is_sent_again_as_the_server_wants() -> None:
    clock = Clock()
    with running() as stub, connect(stub, clock) as connection:
        stub.answers = [BEHIND, (*BEHIND, {"Retry-After": "5"}), (200, {"accepted": 1})]
        assert connection.post("/log", {"data": []}) == {"accepted": 1}
        assert clock.now == PAUSE_SECONDS + 5
        assert [asked.body for asked in stub.asked] == [b'{"data":[]}'] * 3


def test_the_wait_is_bounded_and_other_refusals_end_it() -> None:
    clock = Clock()
    with running() as stub, connect(stub, clock) as connection:
        stub.answers = [(*BEHIND, {"Retry-After": "50"})]
        with pytest.raises(RemoteError, match="429"):
            connection.post("/log", {})
        assert LONGEST_WAIT_SECONDS - 50 < clock.now <= LONGEST_WAIT_SECONDS
        stub.answers, stub.asked = [(404, {})], []
        with pytest.raises(RemoteError, match="404"):
            connection.post("/log", {})
        assert len(stub.asked) == 1


def test_an_answer_may_come_in_pieces_and_one_that_ends_too_soon_is_an_error() -> None:
    whole = b'HTTP/1.1 200 OK\r\ncontent-LENGTH: 14\r\n\r\n{"accepted":1}'
    without_length = b"HTTP/1.1 200 OK\r\n\r\n{}"
    # The packets that the server sends on each connection; it closes the connection behind the last one.
    connections = [[whole[:20], whole[20:50], whole[50:], whole], [whole[:50]], [without_length], [whole]]

    def serve() -> None:
        for packets in connections:
            asked, _ = listening.accept()
            with asked:
                asked.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                asked.recv(65536)
                for packet in packets[:3]:
                    asked.sendall(packet)
                for packet in packets[3:]:
                    asked.recv(65536)
                    asked.sendall(packet)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        with DemoConnection(f"http://127.0.0.1:{listening.getsockname()[1]}") as connection:
            for _ in range(2):
                assert connection.post("/log", {}) == {"accepted": 1}
            # The server has closed the first connection, and ends the second one too soon.
            for reason in ("ended|reset|pipe", "ended|reset|pipe", "Content-Length"):
                with pytest.raises(UnavailableError, match=f"(?i){reason}"):
                    connection.post("/log", {})
            assert connection.post("/log", {}) == {"accepted": 1}
        served.result()
