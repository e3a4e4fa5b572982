"""The writer of topics while it is closed."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

import pytest

from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError

WRITES: list[Callable[[TopicWriter], "Future[None]"]] = [
    lambda writer: writer.write("t", [(b"k", b"v", None)]),
    lambda writer: writer.write_to_all("t", b"k", b"v", [0]),
]


class ClosedMeanwhile:
    """A lock that another thread takes first, to close the writer."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer, self._lock = writer, Lock()

    def __enter__(self) -> None:
        self._writer._lock = self._lock
        self._writer.close(0.1)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("write", WRITES, ids=["write", "write_to_all"])
def test_a_write_while_the_writer_is_closed_fails_instead_of_waiting_for_ever(
    write: Callable[[TopicWriter], "Future[None]"],
) -> None:
    writer = TopicWriter("127.0.0.1:1")
    writer._lock = ClosedMeanwhile(writer)  # type: ignore[assignment]
    with pytest.raises(UnavailableError, match="closed"):
        write(writer).result(2)
