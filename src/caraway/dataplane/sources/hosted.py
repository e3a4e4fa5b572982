"""The part of a source that runs in a process of its own: its reader, whose batches are told to the server in parts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, cast

from msgspec import Raw

from caraway.dataplane.confined.host import Platform
from caraway.dataplane.confined.values import packed
from caraway.dataplane.sources.reader import (
    Forget,
    Items,
    LiveRow,
    OpenReader,
    Position,
    SourceBatch,
    SourceContext,
    ahead_of,
)
from caraway.graph.connectors import Connector

# The most rows that one answer has with their origins. The server refuses an answer with more.
SHOWN_ROWS = 200
# The most live rows of a dataset in one answer of the server.
LIVE_ROWS = 10_000
# The state of a reader, which the server gets with each answer: its lag, when it last found nothing, and its progress.
State = tuple[int | None, float | None, tuple[int, int, str] | None]


class HostedReader:
    """A reader in the process of its source; `caraway.dataplane.sources.remote` is the server's side of each method."""

    def __init__(self, platform: Platform, reader: str, connector: Connector, context: SourceContext) -> None:
        """Open a reader, given its name as "module:class", and a context without functions."""
        self._reader = cast("OpenReader", resolve_name(reader))(connector, _completed(platform, context))
        self._batch: SourceBatch | None = None
        self._number = 0
        # `_expected` has the arguments of the next poll, if it may be done ahead. `_ahead` has its outcome once it is
        # done.
        self._expected: tuple[int, int] | None = None
        self._ahead: _Ahead | None = None
        self._wanted: Iterable[str] = ()
        self._state: State = (None, None, None)

    def seek(self, position: Position, items: Items) -> tuple[Position, State]:
        """Go on from a position, and return it."""
        return self._reader.seek(position, items), self.state()

    def poll(self, rows: int, size: int, timeout_s: float, wanted: Iterable[str]) -> tuple[Any, State]:
        """Return the next batch with these columns, or None."""
        self._wanted = wanted
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            ahead = self._polled(rows, size, timeout_s)
        elif ahead.error is not None:
            raise ahead.error
        self._batch, self._state = ahead.batch, ahead.state
        self._number += 1
        reads_ahead = getattr(self._reader, "reads_ahead", False)
        may_go_on = ahead.batch is not None and not ahead.batch.is_fence
        self._expected = (rows, size) if reads_ahead and may_go_on else None
        return ahead.told, ahead.state

    def work_ahead(self) -> None:
        """Do the next poll while the server takes the rows of the last one."""
        expected, self._expected = self._expected, None
        if expected is None:
            return
        try:
            found = self._polled(*expected, 0.0)
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._ahead = _Ahead(error=error)
        else:
            self._ahead = None if found.batch is None else found

    def peek(self, rows: int) -> object:
        """Return some rows."""
        self._batch = self._reader.peek(rows)
        self._number += 1
        return _told(self._batch, self._number, ())

    def column(self, batch: int, name: str) -> list[object]:
        """Return the values of a column of the last batch."""
        rows = self._of(batch).rows
        return rows.column(name, 0, len(rows))

    def names(self, batch: int) -> list[str]:
        """Return the columns of the last batch."""
        return sorted(self._of(batch).rows.names())

    def shown(self, batch: int, start: int) -> list[tuple[object, Mapping[str, object]]]:
        """Return some rows of the last batch, each with its origin."""
        found = self._of(batch)
        stop = min(start + SHOWN_ROWS, len(found.rows))
        return [(found.rows.row(number), found.origin(number)) for number in range(start, stop)]

    def ahead(self, marks: Iterable[str]) -> list[str]:
        """Return those of some marks that may still be read."""
        asked = set(marks)
        found = set(ahead_of(self._reader, asked))
        if self._ahead is not None and (batch := self._ahead.batch) is not None:
            # Rows that were read ahead, and aren't handed over to the server yet, count as rows to come.
            found |= asked.intersection(map(batch.mark, range(len(batch.rows))))
        return sorted(found)

    def acknowledge(self, position: Position) -> None:
        """Note in the system what is durable."""
        self._reader.acknowledge(position)

    def state(self) -> State:
        """Return what the server wants to know of the reader, as it was before anything was read ahead."""
        if self._ahead is not None:
            return self._state
        progress = self._reader.progress()
        told = None if progress is None else (progress.done, progress.total, progress.unit)
        return self._reader.lag(), self._reader.idle_at(), told

    def close(self) -> None:
        """End the connection."""
        self._reader.close()

    def _of(self, batch: int) -> SourceBatch:
        assert self._batch is not None  # noqa: S101 (the server asks for what it was told of)
        assert batch == self._number  # noqa: S101
        return self._batch

    def _polled(self, rows: int, size: int, timeout_s: float) -> "_Ahead":
        """Do a poll."""
        batch = self._reader.poll(rows=rows, size=size, timeout_s=timeout_s)
        told = None if batch is None else Raw(packed(_told(batch, self._number + 1, self._wanted)))
        return _Ahead(batch=batch, told=told, state=self.state())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """A poll that was done, as it is told."""

    batch: SourceBatch | None = None
    told: Raw | None = None
    state: State = (None, None, None)
    error: Exception | None = None


def _told(batch: SourceBatch, number: int, wanted: Iterable[str]) -> Mapping[str, object]:
    """Return a batch as it is told: its rows by the columns that the server has asked for before."""
    rows = len(batch.rows)
    return {
        "number": number,
        "rows": rows,
        "has_inserts": batch.rows.has_inserts,
        "faults": list(batch.rows.faults.items()),
        "marks": [batch.mark(row) for row in range(rows)] if batch.run is None else None,
        "run": None if batch.run is None else batch.run(0, rows) if rows else "",
        "position": batch.position,
        "items": batch.items,
        "size": batch.size,
        "is_fence": batch.is_fence,
        "is_activity": batch.is_activity,
        "columns": {name: batch.rows.column(name, 0, rows) for name in wanted},
    }


class HostedRemoval:
    """The removal of what a reader has made in its system."""

    def __init__(self, platform: Platform, forget: str, connector: Connector, context: SourceContext) -> None:
        """Prepare, given the name of the function as "module:function"."""
        self._forget = cast("Forget", resolve_name(forget))
        self._connector, self._context = connector, _completed(platform, context)

    def forget(self, position: Position) -> None:
        """Remove it."""
        self._forget(self._connector, self._context, position)

    def close(self) -> None:
        """Do nothing: the function has ended its connection."""


def _completed(platform: Platform, context: SourceContext) -> SourceContext:
    """Return a context with the functions that ask the server."""

    def live_rows() -> Iterator[LiveRow | None]:
        begins = True
        while (found := platform.ask("live rows", begins)) is not None:
            begins = False
            yield from found
            # After each answer of the server, the caller gets a None, and can renew its leases.
            yield None

    return replace(context, resolve=platform.resolve, live_rows=live_rows)


def some_of(rows: Iterator[LiveRow | None]) -> list[LiveRow] | None:
    """Return the next live rows, in the server; None behind the last one."""
    taken: list[LiveRow] = []
    for row in rows:
        if row is None:
            return taken
        taken.append(row)
        if len(taken) == LIVE_ROWS:
            return taken
    return taken or None
