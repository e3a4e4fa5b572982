"""Trials of sources: connect, read a sample, and tell how each row fits the dataset, without changing anything."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits
from caraway.dataplane.confined.process import end_of
from caraway.dataplane.ingest.table import Table
from caraway.dataplane.ingest.targets import EncodedRecord, RowError, Target
from caraway.dataplane.sources.functions.calls import FunctionCalls
from caraway.dataplane.sources.reader import Resolve, SourceBatch, SourceContext
from caraway.dataplane.sources.remote import RemoteReader
from caraway.dataplane.topics.codec import DELETE, RecordCodec
from caraway.dtypes.types import DATETIME
from caraway.dtypes.values import to_json
from caraway.errors import CarawayError, shortened
from caraway.graph.plan.model import IngestPlan
from caraway.graph.secrets.hiding import HiddenSecrets

# The most rows of a sample.
MAX_ROWS = 100
# A trial and its process are ended after this many seconds. Libraries of systems have time limits of their own; this
# one is for libraries that exceed theirs.
TRIAL_S = 30.0
# The most trials at a time, since each may hold a connection, its sample and a process for functions.
TRIALS = 4
# The most characters of a value in a sample.
SHOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRow:
    """A row of a sample.

    Attributes:
        origin: Its place in the source, such as partition and offset, or file and line.
        payload: The row as it was read.
        changes: The changes that it makes in the dataset: fields and values, with `op` "insert" or "delete".
        reasons: Why it would become a dead letter: the field, "" for the whole row, and a message. If there are neither
            changes nor reasons, `where`, `since`, `until` or `sample` leaves the row out.
    """

    origin: Mapping[str, object]
    payload: object
    changes: tuple[Mapping[str, object], ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a trial.

    Attributes:
        dataset: The dataset that the source feeds.
        source: The connector, as people read it.
        error: Why it can't be read; "" if it can.
        seconds: The duration of the trial.
        rows: The sample.
    """

    dataset: str
    source: str
    error: str
    seconds: float
    rows: tuple[TriedRow, ...] = ()


class SourceTrials:
    """Tries sources, several at a time. Thread safe."""

    def __init__(
        self,
        context: Callable[[str, IngestPlan, Target, Resolve], SourceContext],
        functions: Callable[[], FunctionCalls],
        resolve: Resolve,
        limits: ConnectorLimits = UNLIMITED,
    ) -> None:
        """Prepare.

        Args:
            context: Returns the context of a source for its reader, given the name of the source.
            functions: Makes a process for users' functions.
            resolve: Returns the values of secrets.
            limits: The limits of sources.
        """
        self._limits = limits
        self._context = context
        self._resolve = resolve
        self._functions = functions
        self._threads = ThreadPoolExecutor(TRIALS, "source trial")
        self._trying: set[threading.Thread] = set()

    def run(self, plans: Sequence[IngestPlan], rows: int) -> list[Trial]:
        """Try sources that servers read, with samples of at most `rows` rows; 0 only connects."""
        begun = time.monotonic()
        trials: list[Future[Trial]] = [self._threads.submit(self._try, plan, min(rows, MAX_ROWS)) for plan in plans]
        wait(trials, TRIAL_S)
        return [
            trial.result() if trial.done() else _late(plan, trial, time.monotonic() - begun)
            for plan, trial in zip(plans, trials, strict=True)
        ]

    def faults(self, plans: Sequence[IngestPlan]) -> list[str]:
        """Return a line for each source that can't be read."""
        tried = self.run([plan for plan in plans if plan.source.connector.reader], 0)
        return [f"dataset {trial.dataset}, source {trial.source}: {trial.error}" for trial in tried if trial.error]

    def stop(self) -> None:
        """End the trials, and begin no further ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for thread in list(self._trying):
            end_of(thread)

    def _try(self, plan: IngestPlan, rows: int) -> Trial:
        begun = time.monotonic()
        connector = plan.source.connector
        trial = partial(Trial, dataset=plan.topic.dataset, source=connector.identifier)
        functions, secrets = self._functions(), HiddenSecrets(self._resolve)
        thread = threading.current_thread()
        self._trying.add(thread)
        try:
            target = Target(plan, functions)
            context = self._context(f"trial.{plan.topic.name}", plan, target, secrets)
            hold = self._limits.hold(connector)
            with hold(), closing(RemoteReader(connector, context, self._limits, TRIAL_S)) as reader:
                batch = reader.peek(max(rows, 1))
                tried = tuple(_tried(target, batch, min(rows, len(batch.rows))))
        except CarawayError as error:
            return trial(error=secrets.hide(str(error)), seconds=time.monotonic() - begun)
        finally:
            self._trying.discard(thread)
            functions.stop()
        return trial(error="", seconds=time.monotonic() - begun, rows=tried)


def _late(plan: IngestPlan, trial: "Future[Trial]", seconds: float) -> Trial:
    trial.cancel()
    return Trial(
        dataset=plan.topic.dataset,
        source=plan.source.connector.identifier,
        error=f"it didn't answer within {TRIAL_S:g} s; check its address, and whether the server may connect to it",
        seconds=seconds,
    )


def _tried(target: Target, batch: SourceBatch, rows: int) -> Iterator[TriedRow]:
    encoded = target.encode(batch.rows, 0, rows, time.time_ns() // 1000)
    records: dict[int, list[EncodedRecord]] = {}
    errors: dict[int, list[RowError]] = {}
    for record in encoded.records:
        records.setdefault(record[0], []).append(record)
    for error in encoded.errors:
        errors.setdefault(error.row, []).append(error)
    codec = RecordCodec(target.schema)
    for row in range(rows):
        yield TriedRow(
            origin=batch.origin(row),
            payload=_payload(batch.rows, row),
            changes=tuple(_change(target, codec, record) for record in records.get(row, ())),
            reasons=tuple((error.field, error.message) for error in errors.get(row, ())),
        )


def _payload(table: Table, row: int) -> object:
    payload = table.row(row)
    if not isinstance(payload, dict):
        return shortened(str(payload), SHOWN)
    return {str(name): _shown(value) for name, value in payload.items()}


def _shown(value: object) -> object:
    return value if isinstance(value, (bool, int, float, type(None))) else shortened(str(value), SHOWN)


def _change(target: Target, codec: RecordCodec, record: EncodedRecord) -> Mapping[str, object]:
    decoded = codec.decode_value(record[3])
    values = {
        column.name: None if value is None else to_json(column.dtype)(value)
        for column, value in zip(target.schema.columns, decoded.row or (), strict=False)
    }
    at = to_json(DATETIME)(decoded.time)
    return {"op": "delete" if decoded.op == DELETE else "insert", **values, target.schema.timestamp: at}
