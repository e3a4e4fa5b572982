"""A server of the machine's own that speaks AWS's protocols (moto), in a thread of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer


@contextmanager
def running_moto() -> Iterator[str]:
    """Run a server until the block ends, and yield its address.

    All servers of one process have the same objects, so buckets and streams need names of their own.
    """
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()
