"""One check of a dataset: its rows are counted and profiled, until that is recorded together with the positions."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from caraway.compute.expectations.counts import ByWindow, Counts, added, by_window
from caraway.compute.expectations.suite import Checked, CompiledSuite
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dataplane.topics.local_state import remove
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.instants import instant_us, to_datetime
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.quality.deltas import DeltaReader, Deltas
from caraway.offline.monitoring.quality.profiling import Mask, RowProfiles
from caraway.offline.monitoring.quality.seen import SeenRecords
from caraway.offline.monitoring.quality.store import Findings, Sample, coarse, horizon

# The counts of a check are recorded after this many rows at the latest.
RECORDED_ROWS = 200_000
# At most this many failed rows of an expectation are stored as samples at a time, and only rows of at most this many
# bytes.
SAMPLES, SAMPLE_BYTES = 5, 8_192
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode


class Counting:
    """Counts the rows of one check. Not thread safe."""

    def __init__(
        self, plan: CheckPlan, recorded: Mapping[int, int], state: Path, *, profiles_s: float = math.inf
    ) -> None:
        """Prepare.

        Args:
            plan: The check.
            recorded: The positions up to which rows were counted and recorded, by partition.
            state: The file of the records that were seen, for topics whose records may come again.
            profiles_s: The seconds before the newest row beyond which an hour has no profiles.

        Raises `UnavailableError` if the file can't be used.
        """
        self.plan = plan
        self.recorded = dict(recorded)
        self._seen = _opened(state, recorded, revised=plan.topic.revised) if plan.repeats else None
        self._read = dict(recorded) if self._seen is None else self._seen.positions()
        self._deltas = DeltaReader(plan, self._seen)
        types = {column.name: column.dtype for column in plan.schema.columns}
        fields = {field.name: field.dtype for field in plan.dataset.fields}
        self.suite = CompiledSuite(plan.suite, {**fields, **types})
        self._codec = RecordCodec(plan.schema)
        self._counts: list[ByWindow] = []
        self._samples: dict[int, list[Sample]] = {}
        self._profiles_s = profiles_s
        self._profiles = RowProfiles(plan, profiles_s) if plan.profiled else None
        self.rows = 0
        """The number of rows that were counted since the last record."""

    @property
    def positions(self) -> Mapping[int, int]:
        """The offset behind the last message that was read, by partition."""
        return self._read

    @property
    def has_news(self) -> bool:
        """True if messages were read that aren't recorded."""
        return any(offset > self.recorded.get(partition, 0) for partition, offset in self._read.items())

    @property
    def repeats_anywhere(self) -> bool:
        """True if a record may come again on another partition."""
        return self._seen is not None and not self.plan.topic.schema.keys

    @property
    def is_full(self) -> bool:
        """True if what was found should be recorded now, since it takes much memory."""
        return self.rows >= RECORDED_ROWS or (self._profiles is not None and self._profiles.is_full)

    def take(self, messages: Sequence[Message], now: datetime, hides: HidesRecord | None = None) -> None:
        """Count and profile the rows of messages; those that were read before are left out.

        Args:
            messages: Messages of the topic, those of a partition in their order.
            now: The time. Rows that happen later have no part in profiles.
            hides: The check whether a row is erased; profiles have no such row.
        """
        new = [message for message in messages if message[3] >= self._read.get(message[2], 0)]
        if not new:
            return
        self._read |= {partition: offset + 1 for _, _, partition, offset in new}
        deltas = self._deltas.deltas(new, self.recorded)
        if not deltas.rows:
            return
        checked = self.suite.check(deltas.columns(self.suite.columns), len(deltas.rows))
        self._counts.append(by_window(checked, np.array(deltas.times_us, np.int64)))
        self.rows += len(deltas.rows)
        for number, one in enumerate(checked):
            self._sample(number, one, deltas)
        if self._profiles is not None:
            self._profiles.add(deltas, instant_us(now), self._shown(deltas, hides))

    def findings(
        self, newest: datetime | None, now: datetime, kept_s: float, hides: HidesRecord | None = None
    ) -> Findings:
        """Return what was counted since the last record.

        Args:
            newest: The start of the newest window that was recorded.
            now: The time. Windows that begin later are only part of the totals.
            kept_s: The seconds before the newest window (`store.horizon`) beyond which windows are only part of the
                totals.
            hides: The check whether a row is erased; samples have no such row.
        """
        windows = added(self._counts)
        totals: dict[int, Counts] = {}
        for (number, _), counts in windows.items():
            totals[number] = totals.get(number, Counts()) + counts
        starts = {start: found for start in {start for _, start in windows} if (found := _time(start)) is not None}
        known = [start for start in starts.values() if start <= now]
        newest = max((*known, *([] if newest is None else [newest])), default=now)
        since = horizon(newest, timedelta(seconds=kept_s))
        kept: dict[tuple[int, datetime], Counts] = {}
        for (number, start_us), counts in sorted(windows.items()):
            start = starts.get(start_us)
            if start is None or start > now or start < since:
                continue
            key = number, coarse(start, newest)
            kept[key] = kept.get(key, Counts()) + counts
        return Findings(
            check_id=self.plan.check_id,
            since=dict(self.recorded),
            until={**self.recorded, **self._later()},
            windows=kept,
            totals=totals,
            samples=[
                sample
                for samples in self._samples.values()
                for sample in samples
                if not is_hidden(hides, sample.key, sample.row)
            ],
            profiles={} if self._profiles is None else self._profiles.found(),
            profiles_s=self._profiles_s,
        )

    def record(self, found: Findings) -> None:
        """Note that findings are recorded."""
        self.recorded = dict(found.until)
        self._counts, self._samples, self.rows = [], {}, 0
        if self._profiles is not None:
            self._profiles.clear()
        if self._seen is not None:
            self._seen.commit(self._read)

    def close(self) -> None:
        """Forget what isn't recorded."""
        if self._seen is not None:
            self._seen.close()

    def _later(self) -> dict[int, int]:
        """Return the positions behind those that are recorded: a state that is made again may be before them."""
        return {p: offset for p, offset in self._read.items() if offset > self.recorded.get(p, 0)}

    def _shown(self, deltas: Deltas, hides: HidesRecord | None) -> Mask | None:
        """Return which rows aren't of an erased key; None if no key is erased."""
        if hides is None:
            return None
        keys = len(self.plan.schema.keys)
        encoded = ((self._codec.encode_key(row[:keys]), _ENCODE(list(row))) for row in deltas.rows)
        return np.array([not is_hidden(hides, key, row) for key, row in encoded], np.bool_)

    def _sample(self, number: int, checked: Checked, deltas: Deltas) -> None:
        samples = self._samples.setdefault(number, [])
        # The newest rows that failed are the ones of interest.
        for place in np.flatnonzero(checked.failed)[::-1][:SAMPLES].tolist():
            row = deltas.rows[place]
            at = _time(deltas.times_us[place])
            key = self._codec.encode_key(row[: len(self.plan.schema.keys)])
            encoded = _ENCODE(list(row))
            if at is not None and len(encoded) <= SAMPLE_BYTES:
                samples.append(Sample(number, at, key, encoded))
        del samples[:-SAMPLES]


def is_hidden(hides: HidesRecord | None, key: bytes | None, row: bytes) -> bool:
    """Return whether a sample is of an erased key, given its Kafka key and its columns as MessagePack."""
    if hides is None:
        return False
    if key is not None and hides.key is not None and hides.key(key):
        return True
    return hides.row is not None and hides.row(_DECODE(row))


def _opened(state: Path, recorded: Mapping[int, int], *, revised: bool) -> SeenRecords:
    """Open the records that were seen; if these are further than what is recorded, begin with none."""
    seen = SeenRecords(state, revised=revised)
    if all(offset <= recorded.get(partition, 0) for partition, offset in seen.positions().items()):
        return seen
    # The counts were removed from Postgres, because no branch needed them for a while. All records are counted anew, so
    # none may be known as seen.
    seen.close()
    remove(state)
    return SeenRecords(state, revised=revised)


def _time(at_us: int) -> datetime | None:
    try:
        return to_datetime(at_us).astimezone(UTC)
    except OverflowError:
        # Python has no datetime for this time. Such a row only counts in the totals, not in a window.
        return None
