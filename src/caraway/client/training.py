"""Training sets: features of many rows as of the rows' times, computed by a server and read part by part."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
import pyarrow as pa

from caraway.client.batches import Array, Columns, array_batches, torch_dataset
from caraway.client.progress import Progress
from caraway.compute.profiles.tables import Profile, profiled
from caraway.dtypes.instants import SAMPLED_VALUES, lacks_zone, without_zone
from caraway.errors import InvalidInputError, NotServedError, OfflineQueryError, RemoteError, UnavailableError
from caraway.featuresets.features import Feature
from caraway.process.displays import Table, html

if TYPE_CHECKING:
    import polars as pl

ARROW = "application/vnd.apache.arrow.stream"
# The last two columns of a result: the datasets that have less history than a row asks for, and why a row failed.
HISTORY, ERROR = "_history", "_error"
# The states of a query that isn't over.
UNDER_WAY = frozenset({"waiting", "running"})
SUCCEEDED = "succeeded"
# A training set warns if more than this share of its rows have an event at their own time. A smaller share may be
# chance, if events are frequent and have times in whole minutes.
MOST = 0.9
# Seconds between two looks at a query's progress: the first pause, which grows, and the longest one.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
# A client repeats its request for this many seconds while the server doesn't answer. A query outlives a restart of its
# server, which may take minutes on a busy machine.
OUTAGE_S = 600.0
# HTTP statuses from this one on mean that the server is in trouble, for example just starting.
SERVER_ERROR = 500
BATCH_ROWS = 1_024

T = TypeVar("T")


class TrainingSet:
    """The rows of a finished offline query with their features.

    Parts are fetched when they are read, so `batches` needs memory for one part only. Reading rows that failed, or that
    ask for more history than there is, warns of them once, with the first reason.

    Attributes:
        request_id: The id of the query.
        rows: The number of rows.
        failed: The number of rows that failed; `errors` tells why.
        short: The number of rows that asked for more history than there is; `short_history` tells which.
        own_events: The share of rows, of those that were looked at, for which a lookup has changed at their own times.
    """

    def __init__(
        self,
        status: Mapping[str, Any],
        read: Callable[[int], pa.Table],
        explain: Callable[[], Any] | None = None,
    ) -> None:
        """Take the progress of a query that succeeded, and functions that return a part of its result, and explain it.

        Without `explain` there is nothing to explain: the query was computed by a mock client.
        """
        self._explain = explain
        self.request_id = str(status["request_id"])
        self.rows = int(status["rows_done"])
        self.failed = int(status["rows_failed"])
        self.short = int(status.get("rows_short", 0))
        self.own_events = float(status.get("own_events", 0.0))
        self._parts = int(status["parts"])
        self._read = read
        self._profiles: dict[tuple[str, ...], Profile] = {}
        # The methods that list failed or short rows and that the user has called already, or was told to call by a
        # warning: there is one warning for each method.
        self._known: set[str] = set()
        if self.own_events > MOST:
            warnings.warn(
                f"{self.own_events:.0%} of the rows have an event at their own time, which their features count, while "
                "a query before that event doesn't know it; if you query before you log, ask with before=True",
                stacklevel=3,
            )

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        """Return the number of rows, of those that failed, and of those that are short of history."""
        return f"TrainingSet({self._title()}; to_pandas() has them)"

    def _title(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        short = f", {self.short:,} with less history than they ask for" if self.short else ""
        return f"{self.rows:,} rows{failed}{short}"

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows in their order, 5,000 to a million at a time, with the columns `_history` and `_error`."""
        for number in range(self._parts):
            yield self._read(number)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, without `_history` and `_error`: features of failed rows are null."""
        return self._all()

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame with nullable columns; see `to_arrow`."""
        return frame_of(self._all())

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a polars frame; see `to_arrow`."""
        import polars as pl  # noqa: PLC0415 (takes longer to import than the client)

        return pl.DataFrame(pl.from_arrow(self._all()))

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most `rows` rows, in order, without `_history` and `_error`; also `arrays`."""
        if rows < 1:
            raise InvalidInputError(f"batches: rows is a number from 1, not {rows}")
        for part in self.parts():
            self._warn(part, stacklevel=3)
            yield from _features(part).to_batches(max_chunksize=rows)

    def arrays(self, columns: Columns | None = None, rows: int = BATCH_ROWS) -> Iterator[dict[str, Array]]:
        """Yield batches of at most `rows` rows, in order: for each column a NumPy array.

        Numbers and booleans are float64 with NaN for null, so that a column has one type in all batches, whether or
        not there are nulls in a batch. Embeddings have a row of float64 for each row, times are datetime64 in UTC, and
        all else is objects, with None for null.

        Args:
            columns: The columns, as features or names; all by default.
            rows: The most rows of a batch.

        Raises:
            InvalidInputError: There is no such column, or `rows` isn't positive.
        """
        return array_batches(self.batches(rows), columns)

    def to_torch(self, columns: Columns | None = None, rows: int = BATCH_ROWS) -> Any:
        """Return a `torch.utils.data.IterableDataset` of batches: dicts of a tensor of float64 for each column.

        A `DataLoader` takes it with `batch_size=None`, since it yields whole batches, and without workers. Each pass
        over it reads the parts again, so that an epoch needs memory for one part only.

        Args:
            columns: The columns, as features or names; by default all that have numbers, booleans or embeddings.
            rows: The most rows of a batch.

        Raises:
            UnavailableError: PyTorch isn't installed.
            InvalidInputError: When it is read: there is no such column, it has something else than numbers, `rows`
                isn't positive, or a worker reads.
        """
        return torch_dataset(lambda: self.batches(rows), columns)

    def profile(self, keys: Sequence[Feature | str] = ()) -> Profile:
        """Return the profile of the columns: counts, exact moments, quantiles and frequent values.

        It is computed part by part when it is first asked for, and kept. A model that is kept with the bytes of its
        training set's profile (`Profile.to_bytes`) can always be compared with what it is asked with: see
        `caraway.drift` and `Client.set_reference`.

        Args:
            keys: The columns that tell which rows are of the same thing, such as a user's id. If the rows have the
                same users again and again, they say less about drift than as many rows of different users.

        Raises:
            InvalidInputError: There is no such column.
            UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
        """
        names = tuple(str(key) if isinstance(key, str) else key.fqn() for key in keys)
        if names not in self._profiles:
            self._profiles[names] = profiled((_features(part) for part in self.parts()), keys=names)
        return self._profiles[names]

    def explain(self) -> Any:
        """Return what the query read, where it was computed and why, and the seconds that its steps took.

        It is the answer of `Client.explain_offline_query`.

        Raises:
            InvalidInputError: The query was computed by a mock client.
        """
        if self._explain is None:
            raise InvalidInputError("a mock client reads no tables, so it has nothing to explain")
        return self._explain()

    def errors(self) -> pd.DataFrame:
        """Return the rows that failed with their reasons, in the last column; their labels are the rows' numbers."""
        self._known.add("errors")
        frame = frame_of(self._whole())
        return frame[frame[frame.columns[-1]].notna()].drop(columns=frame.columns[-2])

    def short_history(self) -> pd.DataFrame:
        """Return the rows that asked for more history than there is, with the datasets in the last column.

        A row does so if it is earlier than the first record of a dataset, or if a window of a feature reaches back
        beyond that. Its features have the values that would have been served then; but a count of thirty days that has
        seen only three isn't comparable with the others. The labels of the frame are the rows' numbers.
        """
        self._known.add("short_history")
        frame = frame_of(self._whole())
        return frame[frame[frame.columns[-2]].notna()].drop(columns=frame.columns[-1])

    def _whole(self) -> pa.Table:
        tables = list(self.parts())
        return pa.concat_tables(tables) if tables else pa.table({})

    def _all(self) -> pa.Table:
        whole = self._whole()
        # A warning is shown at the line that calls the public method, which calls this one.
        self._warn(whole, stacklevel=4)
        return _features(whole)

    def _warn(self, table: pa.Table, *, stacklevel: int) -> None:
        """Warn, once each, of rows that failed and of rows short of history, if rows that are read are such."""
        for number, column, fault, method in (
            (self.failed, -1, "failed, so that their features are null", "errors"),
            (self.short, -2, "ask for more history than there is", "short_history"),
        ):
            if not number or method in self._known:
                continue
            if reasons := table[table.column_names[column]].drop_null():
                self._known.add(method)
                warnings.warn(
                    f"{number:,} of {self.rows:,} rows {fault}. The first reason: {reasons[0]}. {method}() returns "
                    "these rows with their reasons",
                    stacklevel=stacklevel,
                )

    def _repr_html_(self) -> str:
        if not self._parts:
            return html(self._title(), (), [])
        shown = _features(self._read(0)).slice(0, 10)
        rows = [tuple(row.values()) for row in shown.to_pylist()]
        return html(self._title(), (), [Table("the first rows", tuple(shown.column_names), rows)])


def wait_for(
    request_id: str,
    ask: Callable[[], Mapping[str, Any]],
    *,
    timeout: float | None,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Mapping[str, Any]:
    """Ask for the progress of an offline query until it is over, and return the last answer.

    Raises:
        NotServedError: The query isn't over after `timeout` seconds (None: as long as it takes); it goes on.
        OfflineQueryError: The query failed, or was cancelled.
        RemoteError: The server refused.
        UnavailableError: The server didn't answer for long; see `until_answered`.
    """
    started, pause = clock(), FIRST_PAUSE_S
    with progress:
        while True:
            outage_s = OUTAGE_S if timeout is None else max(0.0, min(OUTAGE_S, timeout - (clock() - started)))
            status = until_answered(request_id, ask, outage_s=outage_s, clock=clock, sleep=sleep)
            progress.show(status["rows_done"], status["rows"] or 0, status["status"])
            if status["status"] not in UNDER_WAY:
                break
            if timeout is not None and clock() - started >= timeout:
                raise NotServedError(
                    f"offline query {request_id} is {status['status']} after {timeout:g} s, with "
                    f"{status['rows_done']:,} of {status['rows'] or '?'} rows; track_offline_query shows its progress",
                    lagging=(),
                )
            sleep(pause)
            # The pause grows by 15%, so a client notices the end of a query after at most about a seventh of the
            # query's time.
            pause = min(1.15 * pause, LONGEST_PAUSE_S)
    if status["status"] != SUCCEEDED:
        reason = status["error"] or "it was cancelled"
        raise OfflineQueryError(f"offline query {request_id} {status['status']}: {reason}")
    return status


def until_answered(
    request_id: str,
    ask: Callable[[], T],
    *,
    outage_s: float = OUTAGE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Ask a server about an offline query, again and again while the server is down or just starting.

    Raises:
        RemoteError: The server refused.
        UnavailableError: The server was down for `outage_s` seconds. The text has the id of the query, which goes on.
    """
    down_at: float | None = None
    pause = FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except (RemoteError, UnavailableError) as error:
            if isinstance(error, RemoteError) and error.status < SERVER_ERROR:
                raise
            down_at = clock() if down_at is None else down_at
            if clock() - down_at + pause > outage_s:
                raise UnavailableError(
                    f"offline query {request_id}: {error}. The query goes on when the server runs again; then "
                    f"Client.offline_result({request_id!r}) returns its result"
                ) from error
        sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def complete(frame: pd.DataFrame) -> TrainingSet:
    """Return the training set of rows that are all right."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for name in (HISTORY, ERROR):
        table = table.append_column(name, pa.nulls(len(frame), pa.string()))
    return TrainingSet({"request_id": "", "rows_done": len(frame), "rows_failed": 0, "parts": 1}, lambda _: table)


def stream_of(frame: Any) -> bytes:
    """Return a pandas or polars frame, or an Arrow table, as an Arrow IPC stream.

    Raises `InvalidInputError` if it is something else, or has a column that Arrow can't hold.
    """
    table = table_of(frame)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def table_in(stream: bytes) -> pa.Table:
    """Return the rows of an Arrow IPC stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


def table_of(frame: Any) -> pa.Table:
    """Return a pandas or polars frame as an Arrow table; see `stream_of`."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pd.DataFrame):
        try:
            return pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InvalidInputError(f"the frame has a column that can't be sent: {error}") from error
    if type(frame).__module__.partition(".")[0] == "polars":
        # polars is loaded already, since the frame is one of its frames, so `sys.modules` has it.
        return frame.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())
    raise InvalidInputError(f"rows are a frame of pandas or polars, or an Arrow table, not {type(frame).__name__}")


def warn_of_zones(table: pa.Table, inputs: Sequence[str], timestamp_column: str) -> None:
    """Warn the caller's caller of inputs and times of rows that have no zone, which the server takes as UTC."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name != timestamp_column and name not in inputs:
            continue
        if pa.types.is_timestamp(column.type):
            is_without = column.type.tz is None and column.null_count < len(column)
        else:
            # Only the texts of the rows' times are times for sure.
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            texts = column[:SAMPLED_VALUES].to_pylist() if is_text and name == timestamp_column else ()
            is_without = any(map(lacks_zone, texts))
        if is_without:
            warnings.warn(without_zone(name), stacklevel=3)


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return rows as a pandas frame with nullable columns."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def _features(table: pa.Table) -> pa.Table:
    """Return a result without its last two columns, which got underscores until their names were free."""
    return table.drop_columns(table.column_names[-2:]) if table.column_names else table


_NULLABLE: dict[pa.DataType, Any] = {
    pa.int64(): pd.Int64Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}
