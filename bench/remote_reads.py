"""The cost of reading an index of another server, compared to one on this server: `python -m bench remote_reads`.

An owner in another process, and a caller in this one, run on this machine. Versions are read one after the other, and
several at a time from one event loop.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.sharding.messages import Answer, Ask, Found
from caraway.dataplane.index.sharding.shard_calls import ShardClients, ShardServer
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.plan.model import IndexKind
from tests.unit.dataplane.index.naive import CODEC, Sent, index_plan

PLAN = index_plan(IndexKind.VERSIONS, revised=False)
KEYS = [f"key{number}" for number in range(10_000)]
PASS = b"bench"
RUNS = 2_000
AT_A_TIME = 16


def answering(folder: Path) -> Callable[[Ask], Answer]:
    """Return a function that answers reads from a database of 10,000 versions."""
    store = IndexStore(folder / "db")
    writer = IndexWriter(store)
    writer.apply(
        PLAN,
        [
            Sent(key, position_id(number, 0), b"", PUT, number, (number, 0.5, "1.00")).message(number)
            for number, key in enumerate(KEYS)
        ],
    )
    reader = IndexReader(store)
    return lambda ask: Found(*reader.read(PLAN, ask.keys, ask.at_us, ask.columns))


def ask_of(keys: int, run: int) -> Ask:
    """Return a read of `keys` keys, which differ from run to run."""
    names = [KEYS[(run * 37 + place) % len(KEYS)] for place in range(keys)]
    return Ask(0, 1, PLAN.asset, [CODEC.encode_key([name]) or b"" for name in names], 10**12, ["n", "x", "d"])


def serve() -> None:
    """Run the owner until standard input ends."""
    with tempfile.TemporaryDirectory() as folder:
        shard_server = ShardServer(lambda: [PASS], "127.0.0.1", 0)
        shard_server.start(answering(Path(folder)))
        sys.stdout.write(f"{shard_server.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        shard_server.stop()


def measured(read: Callable[[Ask], object], keys: int, runs: int) -> list[float]:
    """Return the microseconds of each of `runs` reads of `keys` keys."""
    laps = []
    for run in range(runs):
        ask = ask_of(keys, run)
        started = time.perf_counter()
        read(ask)
        laps.append((time.perf_counter() - started) * 1e6)
    return laps


def tell(name: str, laps: Sequence[float]) -> None:
    """Print the median and the 99th percentile."""
    ordered = sorted(laps)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    sys.stdout.write(f"{name:48} p50 {p50:7.0f} us   p99 {p99:7.0f} us\n")


async def at_once(clients: ShardClients, address: str) -> float:
    """Return the reads a second of an event loop with some requests under way."""

    async def one(number: int) -> None:
        for run in range(RUNS // AT_A_TIME):
            await asyncio.wrap_future(clients.call(address, [ask_of(1, number + run)]))

    started = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(AT_A_TIME)))
    return RUNS / (time.perf_counter() - started)


def compare() -> None:
    """Start an owner, and read from it and from this process by turns."""
    owner = subprocess.Popen(
        [sys.executable, "-m", "bench", "remote_reads", "--serve"],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if owner.stdin is None or owner.stdout is None:
        raise RuntimeError("the owner can't be talked to")
    address = f"127.0.0.1:{int(owner.stdout.readline())}"
    clients = ShardClients(lambda: PASS)

    def there(*asks: Ask) -> list[Answer]:
        return clients.call(address, asks).result()

    with tempfile.TemporaryDirectory() as folder:
        here = answering(Path(folder))
        for keys in (1, 10, 100):
            local: list[float] = []
            remote: list[float] = []
            for _ in range(4):
                local += measured(here, keys, RUNS // 4)
                remote += measured(there, keys, RUNS // 4)
            tell(f"{keys} keys, here", local)
            tell(f"{keys} keys, by a call", remote)
        tell("10 reads of 1 key, in one call", measured(lambda ask: there(*[ask] * 10), 1, RUNS))
    rate = uvloop.run(at_once(clients, address))
    sys.stdout.write(f"{AT_A_TIME} at a time from one event loop: {rate:,.0f} reads/s\n")
    clients.close()
    owner.stdin.close()
    owner.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="run the owner")
    if parser.parse_args().serve:
        serve()
    else:
        compare()
