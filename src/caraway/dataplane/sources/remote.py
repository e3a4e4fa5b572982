"""The server's side of a source whose reader runs in a process of its own (`caraway.dataplane.sources.hosted`).

The process is believed nothing: what it tells is checked to be of the right form, and its rows are cast to the types of
the dataset as all rows are.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec

from caraway.dataplane.addresses.limits import ConnectorLimits
from caraway.dataplane.confined.forms import Form, Int64, Word, document, plain
from caraway.dataplane.confined.process import ConnectorProcess
from caraway.dataplane.confined.rights import rights_of, secrets_of
from caraway.dataplane.ingest.marks import expanded, run_of
from caraway.dataplane.sources.hosted import SHOWN_ROWS, some_of
from caraway.dataplane.sources.reader import (
    Items,
    LiveRow,
    Position,
    Progress,
    SourceBatch,
    SourceContext,
    no_live_rows,
)
from caraway.graph.connectors import Connector

# A reader's state that is older than this many seconds is requested from its process again, for example while nothing
# is polled.
STALE_S = 0.5
# The most rows of a batch. Readers return as many as they are asked for, and a little more.
MOST_ROWS = 1_000_000
# A batch may have at most this many items, with at most this many bytes of names and values, because Postgres stores
# them.
MOST_ITEMS, MOST_ITEM_BYTES = 100_000, 16 << 20
# The characters that separate marks from one another and from the rest of a header.
_SEPARATORS = re.compile("[:,.~]")


class _Told(msgspec.Struct):
    """A batch as the process tells it."""

    number: Int64
    rows: Int64
    has_inserts: bool
    faults: list[tuple[Int64, str]]
    marks: list[str] | None
    run: str | None
    position: dict[str, Any]
    items: dict[str, bytes | None]
    size: Int64
    is_fence: bool
    is_activity: bool
    # The values of each column, as lists. msgspec doesn't check the types of the values, because it would copy the
    # lists, which are long. The values are cast to the types of the dataset later.
    columns: dict[str, Any]


class _State(msgspec.Struct, array_like=True):
    """The state of a reader as its process tells it."""

    lag: Int64 | None
    idle_at: float | None
    progress: tuple[Int64, Int64, Word] | None


_TOLD, _STATE = Form(_Told), Form(_State)
_DICT, _VALUES, _NAMES = Form(dict[str, Any]), Form(list[Any]), Form(list[str])
_PAIR, _SHOWN = Form(tuple[Any, Any]), Form(list[tuple[Any, dict[str, Any]]])


def open_process(
    factory: str,
    name: str,
    connector: Connector,
    context: SourceContext,
    *,
    limits: ConnectorLimits,
    seconds: float | None = None,
) -> ConnectorProcess:
    """Start the process of a source; the thread is held to the limits of its connector.

    Args:
        factory: The class of `caraway.dataplane.sources.hosted` that is made in it.
        name: The reader or the function that this class uses, as "module:name".
        connector: The connector.
        context: All that its reader knows besides.
        limits: The limits of sources.
        seconds: The time in which it must be made, and all its calls be answered; None: each call has its own.
    """
    rights = rights_of(limits, connector, context.resolve, local_folders=context.local_folders, ca_file=context.ca_file)
    live: list[Iterator[LiveRow | None]] = []
    # The number of the last call in which a read of the live rows began. Each call may begin only one, since it takes
    # long for a large dataset.
    begun: list[int] = []

    def live_rows(begins: object) -> list[LiveRow] | None:
        if begins:
            if begun == [process.calls]:
                raise ValueError("the rows of the dataset are read once in a call")
            begun[:] = [process.calls]
            live[:] = [iter(context.live_rows())]
        return some_of(live[0]) if live else None

    process = ConnectorProcess(
        connector.identifier,
        limits,
        rights,
        factory=f"caraway.dataplane.sources.hosted:{factory}",
        arguments=(name, connector, replace(context, resolve=str, live_rows=no_live_rows)),
        answers={"secret": secrets_of(connector, context.resolve), "live rows": live_rows},
        seconds=seconds,
    )
    return process


class RemoteReader:
    """A reader in a process of its own (`SourceReader`)."""

    def __init__(
        self, connector: Connector, context: SourceContext, limits: ConnectorLimits, seconds: float | None = None
    ) -> None:
        """Start the process, and open the reader in it; see `open_process`."""
        self._process = open_process(
            "HostedReader", connector.reader_class, connector, context, limits=limits, seconds=seconds
        )
        self._state, self._state_at = _State(None, None, None), 0.0
        # The columns of the last batch that the server has used. The next poll asks for them, so that they come with
        # the batch.
        self._wanted: set[str] = set()

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a position, and return it."""
        found, state = self._pair(self._process.call("seek", dict(position), dict(items)))
        self._note(state)
        return self._position(found)

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows, or None."""
        found, state = self._pair(self._process.call("poll", rows, size, timeout_s, sorted(self._wanted)))
        self._note(state)
        return None if found is None else self._batch(self._process.read(_TOLD, found))

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row with this mark may still be read."""
        return mark in self.ahead([mark])

    def ahead(self, marks: Iterable[str]) -> frozenset[str]:
        """Return those of some marks that may still be read."""
        return frozenset(self._process.read(_NAMES, self._process.call("ahead", list(marks))))

    def acknowledge(self, position: Position) -> None:
        """Note in the system that everything before this position is durable."""
        self._process.call("acknowledge", dict(position))

    def lag(self) -> int | None:
        """Return how many rows are there beyond those that were read."""
        return self._fresh().lag

    def idle_at(self) -> float | None:
        """Return when the reader last began to look and found nothing."""
        return self._fresh().idle_at

    def progress(self) -> Progress | None:
        """Return how far the current load is."""
        told = self._fresh().progress
        return None if told is None else Progress(done=told[0], total=told[1], unit=told[2])

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows."""
        return self._batch(self._process.read(_TOLD, self._process.call("peek", rows)))

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _fresh(self) -> _State:
        if time.monotonic() > self._state_at + STALE_S:
            self._note(self._process.call("state"))
        return self._state

    def _note(self, state: object) -> None:
        self._state, self._state_at = self._process.read(_STATE, state), time.monotonic()

    def _pair(self, found: object) -> tuple[Any, Any]:
        return self._process.read(_PAIR, found)

    def _batch(self, told: _Told) -> SourceBatch:
        self._process.checked(_check, told)
        mark, run = self._process.checked(_marks, told)
        position = self._position(told.position)
        self._wanted = set()
        rows = _RemoteTable(told, self._column, self._shown, self._wanted, self._names)
        return SourceBatch(
            rows=rows,
            mark=mark,
            run=run,
            origin=lambda row: rows.shown(row)[1],
            position=position,
            items=told.items,
            size=told.size,
            is_fence=told.is_fence,
            is_activity=told.is_activity,
        )

    def _position(self, found: object) -> Position:
        return self._process.checked(document, self._process.read(_DICT, found))

    def _column(self, batch: int, name: str, rows: int) -> list[object]:
        found = self._process.read(_VALUES, self._process.call("column", batch, name))
        if len(found) != rows:
            raise self._process.distrusted(ValueError("a column is too long or too short"))
        return list(found)

    def _names(self, batch: int) -> set[str]:
        return set(self._process.read(_NAMES, self._process.call("names", batch)))

    def _shown(self, batch: int, start: int) -> Sequence[tuple[object, Mapping[str, object]]]:
        found = self._process.read(_SHOWN, self._process.call("shown", batch, start))
        if not 0 < len(found) <= SHOWN_ROWS:
            raise self._process.distrusted(ValueError("there is no such row"))
        return list(found)


class _RemoteTable:
    """The rows of a batch (`caraway.dataplane.ingest.table.Table`), as far as the server needs them."""

    def __init__(
        self,
        told: _Told,
        column: Callable[[int, str, int], list[object]],
        shown: Callable[[int, int], Sequence[tuple[object, Mapping[str, object]]]],
        wanted: set[str],
        names: Callable[[int], set[str]],
    ) -> None:
        self.has_inserts = told.has_inserts
        self.faults: Mapping[int, str] = {row: plain(reason) for row, reason in told.faults}
        self._told, self._wanted = told, wanted
        self._ask_column, self._ask_shown, self._ask_names = column, shown, names
        self._rows: dict[int, tuple[object, Mapping[str, object]]] = {}

    def __len__(self) -> int:
        return self._told.rows

    def names(self) -> set[str]:
        """Return the fields that at least one row has."""
        return self._ask_names(self._told.number)

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a field in rows `start` to `stop`."""
        self._wanted.add(name)
        columns = self._told.columns
        if name not in columns:
            columns[name] = self._ask_column(self._told.number, name, self._told.rows)
        found: list[object] = columns[name]
        return found[start:stop]

    def row(self, number: int) -> object:
        """Return a row as an object, or what came in its place."""
        return self.shown(number)[0]

    def shown(self, number: int) -> tuple[object, Mapping[str, object]]:
        """Return a row and its origin."""
        if number not in self._rows:
            self._rows = dict(enumerate(self._ask_shown(self._told.number, number), number))
        return self._rows[number]


def _check(told: _Told) -> None:
    """Raise `ValueError` if the parts of a batch don't fit together."""
    if not 0 <= told.rows <= MOST_ROWS or told.size < 0:
        raise ValueError("a batch has too many rows")
    if any(not 0 <= row < told.rows for row, _ in told.faults):
        raise ValueError("a row that isn't there has a fault")
    if any(name.startswith("$") for name in told.items):
        raise ValueError("an item has a name of the server's own")
    kept = sum(len(name) + len(value or b"") for name, value in told.items.items())
    if len(told.items) > MOST_ITEMS or kept > MOST_ITEM_BYTES:
        raise ValueError("a batch has too many items")
    if any(type(values) is not list or len(values) != told.rows for values in told.columns.values()):
        raise ValueError("a column is too long or too short")


def _marks(told: _Told) -> tuple[Callable[[int], str], Callable[[int, int], str] | None]:
    """Return the functions `mark` and `run` of a batch; raises `ValueError` if it has other marks than rows."""
    if told.run is not None:
        runs = _Runs(told.run, told.rows)
        return runs.mark, runs.run
    marks = told.marks or []
    if len(marks) != told.rows or _SEPARATORS.search("".join(marks)):
        raise ValueError("the marks aren't those of the rows")
    return marks.__getitem__, None


class _Runs:
    """The marks of rows, most of which follow one another, by one text."""

    def __init__(self, text: str, rows: int) -> None:
        self._text = text
        self._starts: list[int] = []
        # The text of each part. For a part that is a run of numbered marks, also the name and the first number.
        self._parts: list[tuple[str, str, int]] = []
        at = 0
        for part in text.split(",") if text else ():
            first, is_run, last = part.partition("~")
            name, _, number = first.rpartition("/")
            count = int(last) - int(number) + 1 if is_run else 1
            if count < 1 or _SEPARATORS.search(first) or (is_run and run_of(name, int(number), int(last)) != part):
                raise ValueError("the marks can't be read")
            self._starts.append(at)
            self._parts.append((part, name, int(number) if is_run else 0))
            at += count
        if at != rows:
            raise ValueError("the marks aren't those of the rows")
        self._rows = rows

    def mark(self, row: int) -> str:
        """Return the mark of a row."""
        return self._marks[row]

    def run(self, start: int, stop: int) -> str:
        """Return a text for the marks of the rows from one number up to another one."""
        texts: list[str] = []
        for place in range(bisect_right(self._starts, start) - 1, len(self._parts)):
            begin = self._starts[place]
            end = self._starts[place + 1] if place + 1 < len(self._parts) else self._rows
            if begin >= stop:
                break
            part, name, first = self._parts[place]
            low, high = max(start, begin) - begin, min(stop, end) - begin
            texts.append(part if end - begin == 1 else run_of(name, first + low, first + high - 1))
        return ",".join(texts)

    @cached_property
    def _marks(self) -> list[str]:
        return list(expanded(self._text))
