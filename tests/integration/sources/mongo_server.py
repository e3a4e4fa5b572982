"""A server that speaks the part of MongoDB's wire protocol by which a collection is read, for tests without FerretDB.

It compares values by BSON's types, as MongoDB does: a range of a cursor has only values of the same kind.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.decimal128 import Decimal128

OP_MSG = 2013
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
Document = dict[str, Any]


class MongoServer:
    def __init__(self) -> None:
        self.collections: dict[str, list[Document]] = {}
        self.now = datetime(2024, 6, 1, tzinfo=UTC)
        self.commands: list[Document] = []
        self.address = ""
        #: The connection is cut in the middle of the answer with the n-th page of documents.
        self.cut_after: int | None = None
        self._pages = 0
        self._open: dict[int, Iterator[Document]] = {}

    def answer(self, command: Document) -> Document:
        name = next(iter(command))
        self.commands.append(command)
        match name:
            case "hello" | "ismaster" | "isMaster":
                sizes = {"maxBsonObjectSize": 1 << 24, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 1000}
                return {
                    "isWritablePrimary": True,
                    "minWireVersion": 0,
                    "maxWireVersion": 17,
                    "localTime": self.now,
                    **sizes,
                }
            case "find":
                found = self._found(command)
                return self._page(command["find"], command["$db"], found, command.get("batchSize", 101), "firstBatch")
            case "getMore":
                found = self._open.pop(command["getMore"])
                return self._page(command["collection"], command["$db"], found, command["batchSize"], "nextBatch")
            case "aggregate":
                match, *rest = command["pipeline"]
                limit = next((stage["$limit"] for stage in rest if "$limit" in stage), None)
                matching = (each for each in self._of(command["aggregate"]) if matches(each, match["$match"]))
                count = sum(1 for _ in islice(matching, limit))
                return {"cursor": {"id": 0, "ns": "", "firstBatch": [{"_id": 1, "n": count}] if count else []}}
            case "count":
                return {"n": len(self._of(command["count"]))}
            case "listCollections":
                names = [{"name": each, "type": "collection"} for each in self.collections]
                return {"cursor": {"id": 0, "ns": "", "firstBatch": names}}
            case "killCursors" | "endSessions" | "ping":
                return {}
            case _:
                return {"ok": 0.0, "errmsg": f"no such command: {name}", "code": 59}

    @property
    def cuts(self) -> bool:
        return self.cut_after is not None and self._pages > self.cut_after

    def _of(self, name: str) -> list[Document]:
        return self.collections.get(name, [])

    def _found(self, command: Document) -> Iterator[Document]:
        found = [each for each in self._of(command["find"]) if matches(each, command.get("filter", {}))]
        for name, direction in command.get("sort", {}).items():
            found.sort(key=lambda each: order(each.get(name)), reverse=direction < 0)
        wanted = {name for name, there in command.get("projection", {}).items() if there}
        if command.get("projection", {}).get("_id", 1):
            wanted.add("_id")
        limit = abs(command.get("limit", 0)) or None
        whole = "projection" not in command
        return ({name: part for name, part in each.items() if whole or name in wanted} for each in islice(found, limit))

    def _page(self, name: str, database: str, found: Iterator[Document], size: int, part: str) -> Document:
        self._pages += 1
        page = list(islice(found, size))
        number = 0
        if len(page) == size:
            number = len(self.commands)
            self._open[number] = found
        return {"cursor": {"id": bson.Int64(number), "ns": f"{database}.{name}", part: page}}


def order(value: Any) -> tuple[int, Any]:
    """Return a key by which values are compared across types."""
    match value:
        case None:
            return 0, 0
        case bool():
            return 6, value
        case int() | float():
            return 1, value
        case Decimal128():
            return 1, value.to_decimal()
        case str():
            return 2, value
        case bson.ObjectId():
            return 5, value.binary
        case datetime():
            return 7, value
        case _:
            return 3, str(value)


TYPES = {"number": 1, "string": 2, "date": 7}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$lte": lambda value, other: order(value) <= order(other) and order(value)[0] == order(other)[0],
    "$gte": lambda value, other: order(value) >= order(other) and order(value)[0] == order(other)[0],
    "$gt": lambda value, other: order(value) > order(other) and order(value)[0] == order(other)[0],
    "$ne": lambda value, other: value != other,
    "$type": lambda value, other: order(value)[0] == TYPES[other],
    "$not": lambda value, other: not all(COMPARISONS[name](value, part) for name, part in other.items()),
}


def matches(document: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        (name in document) == part if operation == "$exists" else COMPARISONS[operation](document.get(name), part)
        for name, conditions in wanted.items()
        for operation, part in conditions.items()
    )


@contextmanager
def running(server: MongoServer) -> Iterator[MongoServer]:
    """Serve on a free port of this machine."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):
                while head := self.rfile.read(16):
                    length, number, _, operation = struct.unpack("<iiii", head)
                    body = self.rfile.read(length - 16)
                    if operation == OP_MSG:
                        command = bson.decode(body[5:], OPTIONS)
                    else:
                        # The first message of a connection is one of the old form, OP_QUERY.
                        command = bson.decode(re.split(rb"\x00", body[4:], maxsplit=1)[1][8:], OPTIONS)
                    answer = bson.encode({"ok": 1.0, **server.answer(command)})
                    if operation == OP_MSG:
                        content = struct.pack("<IB", 0, 0) + answer
                        kind = OP_MSG
                    else:
                        content, kind = struct.pack("<iqii", 8, 0, 0, 1) + answer, 1
                    message = struct.pack("<iiii", len(content) + 16, 1, number, kind) + content
                    if server.cuts and {"find", "getMore"} & command.keys():
                        self.wfile.write(message[: len(message) // 2])
                        return
                    self.wfile.write(message)

    class Server(ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as served:
        Thread(target=served.serve_forever, args=(0.01,), daemon=True).start()
        server.address = f"127.0.0.1:{served.server_address[1]}"
        yield server
        served.shutdown()
