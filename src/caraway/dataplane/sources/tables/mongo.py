"""Collections of MongoDB, read in the order of a cursor.

A document has no columns of its own. The columns that are read are those that the dataset and its source need; a
document that lacks one has null there. Pages end with all documents of a value of the cursor, so the order of `_id`,
whose type may differ from document to document, doesn't count.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

from caraway.compute.rows.records import demanded_columns
from caraway.dataplane.addresses.names import checked_host
from caraway.dataplane.addresses.reach import check_hosts
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import MAX_NULLS, Bounds, Page, Row, TableColumn, TableShape
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import MongoSystem

try:
    import bson
    from bson.binary import UuidRepresentation
    from bson.codec_options import CodecOptions, DatetimeConversion
    from bson.datetime_ms import DatetimeMS
    from bson.decimal128 import Decimal128
    from bson.regex import Regex
    from bson.timestamp import Timestamp
    from pymongo import ASCENDING, DESCENDING, MongoClient
    from pymongo.collection import Collection
    from pymongo.errors import ConfigurationError, OperationFailure, PyMongoError
    from pymongo.read_concern import ReadConcern
except ImportError as error:
    raise UnavailableError("MongoDB is read by pymongo, which isn't installed: pip install caraway[mongo]") from error

# Time limits in seconds: for finding a server, for a connection, and for an answer.
FIND_S, CONNECT_S, ANSWER_S = 10, 5, 120
MS = 1_000
MONGO_PORT = 27017
# The most documents of one answer; MongoDB also ends it at 16 MB.
CHUNK = 500
# If a function may read any column, the columns are those of this many documents with the greatest cursors.
SAMPLE = 1_000
ID = "_id"
# A single document that Python can't read must not keep others from being read. Its texts that aren't UTF-8 get
# replacement characters, and its times beyond Python's years become `DatetimeMS`.
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    uuid_representation=UuidRepresentation.STANDARD,
    document_class=dict,
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
# For each kind of cursor, the name of the BSON types (`$type`) whose values MongoDB compares with one another.
TYPES = {CursorKind.NUMBER: "number", CursorKind.TIME: "date", CursorKind.TEXT: "string"}
# The types whose values are JSON or a time already.
PLAIN = frozenset({str, int, float, bool, datetime, type(None)})


class MongoReader(CursorReader):
    """Reads a collection of MongoDB (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: MongoCollection(connector, context), connector, context)


class MongoCollection:
    """A collection of MongoDB (`Database`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare; it connects at the first use."""
        system = connector.system
        assert isinstance(system, MongoSystem)  # noqa: S101 (the planner refuses others)
        self._system = system
        self._context = context
        self._name = connector.table
        self._cursor = connector.cursor or ""
        self._address = address_of(system.host, context.endpoints.get(system.name))
        self.where = f"Mongo {system.name} at {system.host}, database {system.database}, collection {self._name}"
        self._client: MongoClient[dict[str, Any]] | None = None

    def shape(self) -> TableShape:
        """Return the columns that are read; see `Database.shape`."""
        with self._errors():
            collection = self._collection()
            last = self._last(collection)
            if last is None:
                # MongoDB makes a collection with its first document, so a wrong name looks like that of an empty
                # collection.
                there = ", ".join(sorted(collection.database.list_collection_names())[:20])
                raise UnavailableError(
                    f"{self.where}: no document has the cursor {self._cursor} yet, or there is no such collection; "
                    f"collections: {there or 'none'}"
                )
            names = {self._cursor, ID, *demanded_columns(self._context.dataset, self._context.source)}
            if self._context.columns is None:
                # Each document has fields of its own. A function that may read any field gets those of the last
                # documents.
                some = collection.find({}, sort=[(self._cursor, DESCENDING)], limit=SAMPLE)
                names.update(*(document.keys() for document in some))
            rows = collection.estimated_document_count()
        value = last[self._cursor]
        columns = {name: TableColumn(name=name, type="BSON", convert=plain) for name in names}
        columns[self._cursor] = TableColumn(
            name=self._cursor, type=type(value).__name__, kind=_kind(value), convert=plain
        )
        return TableShape(columns=columns, rows=rows)

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor; see `Database.bounds`."""
        kind = cursor.kind
        assert kind is not None  # noqa: S101 (the reader has checked it)
        with self._errors():
            collection = self._collection()
            last = self._last(collection)
            clock = collection.database.command("hello").get("localTime")
            others = {cursor.name: {"$not": {"$type": TYPES[kind]}}}
            nulls = collection.count_documents(others, limit=MAX_NULLS)
        if last is None or _kind(last[cursor.name]) is not kind:
            return Bounds(greatest=None, nulls=nulls)
        now_us = None if clock is None else int(clock.timestamp() * 1_000_000)
        return Bounds(greatest=self._value(last), now_us=now_us, nulls=nulls)

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        wanted: dict[str, Any] = {"$lte": _stored(page.most)}
        if page.after is not None:
            wanted["$gt"] = _stored(page.after[0])
        elif page.least is not None:
            wanted["$gte"] = _stored(page.least)
        names = page.columns
        projection = {**dict.fromkeys(names, 1), ID: int(ID in names)}
        with self._errors():
            found = self._collection().find_raw_batches(
                {names[0]: wanted},
                projection,
                sort=[(names[0], ASCENDING)],
                limit=page.limit or 0,
                batch_size=min(CHUNK, page.limit or CHUNK),
            )
            try:
                for batch in found:
                    rows: list[list[Any]] = []
                    for document in bson.decode_all(cast("bytes", batch), OPTIONS):
                        row = [document.get(name) for name in names]
                        row[0] = self._value(document)
                        rows.append(row)
                    yield rows
            finally:
                found.close()

    def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _last(self, collection: "Collection[dict[str, Any]]") -> dict[str, Any] | None:
        """Return a document with the greatest value of the cursor; None if none has one."""
        return collection.find_one(
            {self._cursor: {"$exists": True, "$ne": None}}, {self._cursor: 1}, sort=[(self._cursor, DESCENDING)]
        )

    def _value(self, document: Mapping[str, Any]) -> Any:
        """Return the cursor of a document, as Python compares it."""
        value = document[self._cursor]
        match value:
            case Decimal128():
                return value.to_decimal()
            case float():
                # Whole numbers are often stored as floating-point numbers, because JavaScript's numbers are such.
                if not value.is_integer():
                    raise UnavailableError(
                        f"{self.where}: the cursor {self._cursor} is {value} in the document {document.get(ID, '')}; a "
                        "cursor is a whole number, a date, or a text that is a time"
                    )
                return int(value)
            case _:
                return value

    def _collection(self) -> "Collection[dict[str, Any]]":
        if self._client is None:
            resolve, system = self._context.resolve, self._system
            # A server without access control has no users, so an empty name stands for none.
            user, password = resolve(system.username), resolve(system.password)
            if self._address.startswith("mongodb://"):
                check_hosts(urlsplit(self._address).netloc.rpartition("@")[2], MONGO_PORT)
            self._client = MongoClient(
                self._address,
                username=user or None,
                password=password if user else None,
                appname="caraway",
                serverSelectionTimeoutMS=FIND_S * MS,
                connectTimeoutMS=CONNECT_S * MS,
                socketTimeoutMS=ANSWER_S * MS,
            )
        # "majority" leaves out documents that a failover could roll back.
        return self._client[self._system.database].get_collection(
            self._name, codec_options=OPTIONS, read_concern=ReadConcern("majority")
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except PyMongoError as error:
            self.close()
            raise UnavailableError(f"{self.where}: {_text(error)}") from None


def address_of(host: str, endpoint: str | None) -> str:
    """Return the address of a cluster.

    Args:
        host: The host of the definition: a name that has an SRV record, or "host:port", or several of these with commas
            between them.
        endpoint: The address in this deployment; it may be a whole `mongodb://` address with options.

    Raises `UnavailableError` if the host is something else: an address with options could name files of the server.
    """
    address = endpoint or checked_host(host)
    if "://" in address:
        return address
    return f"mongodb://{address}" if ":" in address else f"mongodb+srv://{address}"


def plain(value: Any) -> object:
    """Return a value of BSON as JSON, or as a time, a `Decimal` or bytes."""
    if type(value) in PLAIN:
        return value
    match value:
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
        case int():
            return int(value)
        case Decimal128():
            return value.to_decimal()
        case UUID():
            return str(value)
        case bytes():
            return bytes(value)
        case Timestamp():
            return value.as_datetime()
        case DatetimeMS():
            raise ValueError(f"{int(value)} ms since 1970 are beyond the years that can be read")
        case Regex():
            return str(value.pattern)
        case _:
            # Object ids are their hexadecimal digits.
            return str(value)


def _kind(value: object) -> CursorKind | None:
    match value:
        case bool():
            return None
        case int() | float() | Decimal128():
            return CursorKind.NUMBER
        case datetime():
            return CursorKind.TIME
        case str():
            return CursorKind.TEXT
        case _:
            return None


def _stored(value: Any) -> Any:
    """Return the value of a cursor as MongoDB stores it."""
    return Decimal128(value) if isinstance(value, Decimal) else value


def _text(error: PyMongoError) -> str:
    text = " ".join(str(error).split())[:500]
    match error:
        case OperationFailure(code=18):
            return f"{text}; correct the user's name or password"
        case OperationFailure(code=13):
            return f"{text}; give the user the role read on the database"
        case ConfigurationError():
            return f"{text}; a host without a port is looked up by its SRV record; write host:port for a single server"
        case _:
            return text
