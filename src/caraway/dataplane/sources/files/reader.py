"""The reader of files: in each round it lists the store, and reads the files that are new or have changed.

The position has the file that is being read and the number of its next row. The files that were read are kept as
items, each with its *version*: a digest of path, size and time of the last change. A file of another version is
read again in full. The mark of a row is the version of its file and its number in it.
"""

import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

from caraway.dataplane.ingest.marks import run_of
from caraway.dataplane.sources.files.decoders import ABOUT_CONTENT, Decoding, decoder_of
from caraway.dataplane.sources.files.listing import Listed, list_files
from caraway.dataplane.sources.files.pieces import JoinedTable, Piece, cast_types
from caraway.dataplane.sources.files.stored import FileStore, StoredFile, StoreFile, VanishedError
from caraway.dataplane.sources.files.stores import open_store
from caraway.dataplane.sources.files.templates import Template, Wanted
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.dataplane.sources.rounds import ReadInRounds, Rounds
from caraway.errors import UnavailableError, shortened
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.sources import Ref

# The most files that are remembered, and that one round reads: a file takes some 250 bytes of memory.
MAX_FILES = 1_000_000
# The most files whose rows go into one batch. Batches of several files are needed so that small files aren't written
# one by one.
BATCH_FILES = 200
# The most files that one batch reports as gone, since the server refuses a batch with very many items.
BATCH_GONE = 10_000
# The most files among which a peek looks for the newest one, so that it takes no longer than some seconds.
PEEK_FILES = 1_000
DIGEST_BYTES = 16


class FilesReader(ReadInRounds):
    """Reads files of S3, Google Cloud Storage, Azure or a folder (`SourceReader`)."""

    reads_ahead = True

    def __init__(
        self,
        connector: S3Connector | FilesConnector,
        context: SourceContext,
        *,
        rounds: Rounds | None = None,
        max_files: int = MAX_FILES,
    ) -> None:
        """Prepare to read.

        Args:
            connector: The connector.
            context: All else that the reader knows.
            rounds: The rounds, if they aren't those of the machine's clock.
            max_files: The most files that are remembered.

        Raises:
            UnavailableError: The library for the format isn't installed.
        """
        self._connector = connector
        self._context = context
        self._decode = decoder_of(connector.format)
        self._rounds = rounds or Rounds(context.source.every_us)
        self._max_files = max_files
        self._template = Template(connector.suffix)
        source = context.source
        self._wanted = Wanted(since_us=source.since_us, until_us=source.until_us, spread_us=connector.spread_us or 0)
        timestamp = _timestamp_column(context)
        self._how = Decoding(columns=context.columns, timestamp=timestamp, wanted=self._wanted)
        self._types = cast_types(context.dataset, context.source)
        self._opened: FileStore | None = None
        # The version of each file that was read, by the digest of its path.
        self._known: dict[str, bytes] = {}
        self._is_listed = False
        # After the listing: the versions of the files that are still to be read. Before it: the versions of the files
        # that were read. None until `is_ahead` needs them.
        self._versions: set[str] | None = None
        # Known files that the store doesn't have any more, and that the next batches make the server forget.
        self._gone: Sequence[str] = ()
        # The files that this round still reads, the next one last.
        self._pending: list[StoredFile] = []
        self._current: _Reading | None = None
        self._done = self._total = 0

    def seek(self, position: Position, items: Items) -> Position:
        """Go on in the file that was being read, if it is still the same; see `SourceReader.seek`."""
        self._known = dict(items)
        self._rounds.go_on(position)
        if position.get("file") is not None:
            path, size, written_ns = position["file"]
            self._current = self._reading(StoredFile(path, size, written_ns), int(position["row"]))
            self._total += size
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows; see `SourceReader.poll`.

        The listing at the beginning of a round isn't bounded in time.
        """
        if not self._rounds.is_on:
            if not self._rounds.wait(timeout_s):
                return None
            self._rounds.begin()
            self._is_listed, self._versions = False, None
        begun = time.monotonic()
        if self._current is None and not self._is_listed:
            self._list()
        batch = self._read(rows, size, begun + timeout_s)
        self._rounds.note(len(batch.rows), begun)
        return batch

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row may still be read: of a file that is read now or later, as far as the listing tells."""
        version, _, row = mark.partition("/")
        current = self._current
        if current is not None and current.version == version:
            return int(row) >= current.row
        if self._versions is None:
            # The versions are collected when they are first asked for, which is only after a crash.
            among = map(_version, self._pending) if self._is_listed else map(_text, self._known.values())
            self._versions = set(among)
        return (version in self._versions) == self._is_listed

    def progress(self) -> Progress | None:
        """Return how many bytes of the files of this round are read."""
        if not self._rounds.is_on or not self._is_listed or not self._total:
            return None
        current = 0 if self._current is None else min(self._current.read_bytes, self._current.file.size)
        return Progress(done=min(self._total, self._done + current), total=self._total, unit="bytes")

    def peek(self, rows: int) -> SourceBatch:
        """Return the first rows of the file that changed last, among the first ones of the listing."""
        store = self._store()
        store.check()
        found = list_files(store, self._connector.prefix, self._template, self._wanted)
        some = [listed.file for listed in islice(found, PEEK_FILES)]
        last = max(some, key=lambda file: file.written_ns, default=None)
        parts: list[_Part] = []
        if last is not None:
            reading = self._reading(last, 0)
            with suppress(VanishedError):
                part = reading.next(store, rows)
                parts += [] if part is None else [part]
            reading.close()
        return self._batch(parts, {}, 0)

    def close(self) -> None:
        """Close the file that is open."""
        if self._current is not None:
            self._current.close()

    def _store(self) -> FileStore:
        if self._opened is None:
            self._opened = open_store(self._connector, self._context)
        return self._opened

    def _reading(self, file: StoredFile, row: int) -> "_Reading":
        return _Reading(file, row, self._decode, self._how)

    def _list(self) -> None:
        """List the files that are new, or have changed since they were read."""
        store = self._store()
        store.check()
        found: list[Listed] = []
        there: set[str] = set()
        for listed in list_files(store, self._connector.prefix, self._template, self._wanted):
            path = _path_digest(listed.file.path)
            there.add(path)
            if len(there) > self._max_files:
                raise UnavailableError(
                    f"{store.where}: more than {self._max_files:,} files match; give a path with times and `since`, or "
                    "divide them among several sources"
                )
            if self._known.get(path) != _digest(listed.file):
                found.append(listed)
        # Files that are gone stay known, since a folder may be missing only for a while. They are forgotten only if
        # there would otherwise be more than `max_files`.
        self._gone = (
            [] if len(self._known) + len(found) <= self._max_files else [p for p in self._known if p not in there]
        )
        found.sort(key=self._order, reverse=True)
        self._pending = [listed.file for listed in found]
        self._done, self._total = 0, sum(file.size for file in self._pending)
        self._is_listed, self._versions = True, None

    def _order(self, listed: Listed) -> tuple[int, int, str]:
        """Return the place of a file: by the time in its path, then by that of its last change; or by its path."""
        if self._connector.presorted:
            return (0, 0, listed.file.path)
        begin = 0 if listed.interval is None else listed.interval.begin_us
        return (begin, listed.file.written_ns, listed.file.path)

    def _read(self, rows: int, size: int, deadline: float) -> SourceBatch:
        """Return the rows of as many files as fit into a batch."""
        store = self._store()
        parts: list[_Part] = []
        items: dict[str, bytes | None] = {}
        read, left = 0, rows
        while left > 0 and read < size and len(items) < BATCH_FILES:
            if self._current is None:
                if not self._is_listed or not self._pending or (parts and time.monotonic() > deadline):
                    break
                self._current = self._reading(self._pending.pop(), 0)
                if self._versions is not None:
                    self._versions.discard(self._current.version)
            current = self._current
            before = current.read_bytes
            try:
                part = current.next(store, left)
            except VanishedError:
                # The file was removed or replaced after it was listed. If it was replaced, the next listing finds the
                # new version.
                part, is_same = None, False
            else:
                is_same = True
            read += current.read_bytes - before
            if part is None:
                if is_same:
                    path = _path_digest(current.file.path)
                    items[path] = self._known[path] = _digest(current.file)
                self._done += current.file.size
                current.close()
                self._current = None
            else:
                parts.append(part)
                left -= len(part.piece)
        if self._current is None and not self._pending and self._is_listed:
            told, self._gone = self._gone[:BATCH_GONE], self._gone[BATCH_GONE:]
            for path in told:
                items[path] = None
                self._known.pop(path, None)
            if not self._gone:
                self._rounds.end()
        return self._batch(parts, items, read)

    def _batch(self, parts: "Sequence[_Part]", items: Mapping[str, bytes | None], size: int) -> SourceBatch:
        table = JoinedTable([part.piece.table(self._types) for part in parts])

        def part_of(row: int) -> "tuple[_Part, int]":
            at = table.at(row)
            return parts[at], row - table.starts[at]

        def mark(row: int) -> str:
            part, at = part_of(row)
            return f"{part.version}/{part.piece.first + at}"

        def run(start: int, stop: int) -> str:
            texts: list[str] = []
            for begin, part in zip(table.starts, parts, strict=True):
                first, last = max(start - begin, 0), min(stop - begin, len(part.piece)) - 1
                if first <= last:
                    texts.append(run_of(part.version, part.piece.first + first, part.piece.first + last))
            return ",".join(texts)

        def origin(row: int) -> Mapping[str, object]:
            part, at = part_of(row)
            lines = part.piece.lines
            place = {"row": part.piece.first + at + 1} if lines is None else {"line": lines[at]}
            return {"file": part.path, **place}

        return SourceBatch(
            rows=table, mark=mark, run=run, origin=origin, position=self._position(), items=items, size=size
        )

    def _position(self) -> dict[str, Any]:
        position: dict[str, Any] = self._rounds.to_json()
        if (current := self._current) is not None:
            file = current.file
            position |= {"file": [file.path, file.size, file.written_ns], "row": current.row}
        return position


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one file in a batch."""

    path: str
    version: str
    piece: Piece


class _Reading:
    """A file that is being read."""

    def __init__(self, file: StoredFile, row: int, decode: Any, how: Decoding) -> None:
        self.file = file
        self.row = row
        """The number of the next row."""
        self.version = _version(file)
        self._decode = decode
        self._how = how
        self._open: StoreFile | None = None
        self._pieces: Iterator[Piece] | None = None
        # The rows that were decoded and aren't handed over yet.
        self._ready: Piece | None = None
        self._is_broken = False

    @property
    def read_bytes(self) -> int:
        """How many bytes were read."""
        return 0 if self._open is None else self._open.read_bytes

    def next(self, store: FileStore, most: int) -> _Part | None:
        """Return the next rows; None at the end of the file.

        Raises `VanishedError` if the file isn't the one that was listed any more.
        """
        if self._ready is None:
            self._ready = self._decoded(store)
            # The file was read before this check. So if it still is the version that was listed, the content is that of
            # this version.
            if store.find(self.file.path) != self.file:
                raise VanishedError(self.file.path)
        if self._ready is None:
            return None
        piece = self._ready.cut(0, most)
        self._ready = self._ready.cut(most, len(self._ready)) if len(piece) < len(self._ready) else None
        self.row = piece.first + len(piece)
        return _Part(self.file.path, self.version, piece)

    def close(self) -> None:
        """Close the file."""
        self._pieces = None
        if self._open is not None:
            with suppress(Exception):
                self._open.close()

    def _decoded(self, store: FileStore) -> Piece | None:
        if self._is_broken:
            return None
        try:
            if self._pieces is None:
                self._open = store.open(self.file.path)
                self._pieces = self._decode(self.file.path, self._open, self.row, self._how)
            return next((piece for piece in self._pieces if len(piece)), None)
        except ABOUT_CONTENT as error:
            # One dead letter stands for all that comes behind the damage.
            self._is_broken = True
            reason = f"decode: the rest of the file can't be read: {shortened(str(error))}"
            return Piece(first=self.row, rows=[None], faults={0: reason})


def _timestamp_column(context: SourceContext) -> str | None:
    """Return the column of the payload that becomes the event time; None if it is computed, or inside of a change."""
    if context.source.cdc.has_envelopes:
        return None
    name = context.dataset.timestamp
    match dict(context.source.preproc).get(name):
        case None:
            return name
        case Ref(path=(column,)):
            return column
        case _:
            return None


def _digest(file: StoredFile) -> bytes:
    """Return the version of a file."""
    text = f"{file.size}/{file.written_ns}/{file.path}"
    return blake2b(text.encode(errors="surrogateescape"), digest_size=DIGEST_BYTES).digest()


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _version(file: StoredFile) -> str:
    return _text(_digest(file))


def _path_digest(path: str) -> str:
    """Return the name of a file among the items: paths may be long, and none is secret enough to hash it for that."""
    return _text(blake2b(path.encode(errors="surrogateescape"), digest_size=DIGEST_BYTES).digest())
