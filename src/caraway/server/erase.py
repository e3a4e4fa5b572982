"""Erasing keys: what is asked for is written down first, and then done by every server, however often one restarts.

1. The request writes the hashes of the keys to Postgres. From then on it will be done.
2. This server doesn't show the keys any more and takes no rows of them; others learn of it within a second or two.
3. A record on the topic tells all indexes that are ever built from it.
4. Each server removes what its index has of the keys, and says so in Postgres.
"""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog
from confluent_kafka import KafkaException

from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.rows.column_casts import MISSING, ColumnCast
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.specs import DatasetSpec
from caraway.integrations.keyring import Keyring
from caraway.objects import ObjectFolder
from caraway.plan.model import Column, GraphPlan, IndexPlan
from caraway.recurring import Recurring
from caraway.server.access_limits import Limits, require
from caraway.server.erase_archive import PLACE, ErasedRows
from caraway.server.errors import TooLargeError
from caraway.server.http import Request, Response, json_response
from caraway.server.live import Serving
from caraway.state import ErasedKey, ErasureLog, ErasureRecord, Mode, Needed
from caraway.topics import ErasedKeys, Erasure, TopicWriter, encode_erasure, erasure_of

LOG = structlog.get_logger(__name__)

INTERVAL_S = 1.0
WRITE_TIMEOUT_S = 10.0
MAX_KEYS = 10_000
SHOWN = 1_000


class Erasing(Protocol):
    """What erases (`Eraser`)."""

    def ask(self, keys: Sequence[ErasedKey]) -> int:
        """Write down what is to be erased, and stop showing it; return how many keys are new."""
        ...


class Removing(Protocol):
    """What has entries of erased keys (`caraway.index.IndexWorker`, or a share of a divided index)."""

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return of each index the erased keys: those of which entries may be left, or all others."""
        ...

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys from an index; tell whether all are removed."""
        ...


class EraseRoutes:
    """Answers requests to erase keys."""

    def __init__(
        self,
        serving: Serving,
        limits: Limits,
        eraser: Erasing,
        *,
        log: ErasureLog,
        keyring: Keyring,
        needed: Callable[[], Needed | None],
    ) -> None:
        """Let `eraser` do what callers within their `limits` ask for; the keys are hashed with `keyring`."""
        self._serving = serving
        self._limits = limits
        self._eraser = eraser
        self._log = log
        self._keyring = keyring
        self._needed = needed

    async def erase(self, request: Request, dataset: str) -> Response:
        """`POST /dataset/{name}/erase`: remove all rows with these keys, past and to come."""
        live = self._serving.require_live(request.branch)
        spec = live.queries.catalog.dataset(dataset)
        tags = self._limits.tags(live).entities
        require(request.caller, Mode.WRITE_DATA, request.branch, [(dataset, tags.get(dataset, frozenset()))])
        columns, values = parsed(spec, request.json())
        plans = self._plans(request.branch) or [live.plan]
        number = uuid.uuid4().hex
        keys = [
            ErasedKey(
                request=number,
                branch=request.branch,
                dataset=dataset,
                topic=topic,
                account=request.caller.account,
                token_id=request.caller.token_id,
                columns=erasure.columns,
                key_id=erasure.key_id,
                digest=erasure.digest,
            )
            for topic in topics_of(dataset, plans)
            for row in values
            for erasure in [erasure_of(topic, columns, row, self._keyring.current.id, self._keyring.current.mac_key)]
        ]
        new = await asyncio.to_thread(self._eraser.ask, keys)
        return json_response({"request": number, "keys": len(values), "new": new})

    async def erasures(self, request: Request, dataset: str) -> Response:
        """`GET /dataset/{name}/erasures`: what was erased by whom, and what is done of it where."""
        live = self._serving.require_live(request.branch)
        live.queries.catalog.dataset(dataset)
        records = await asyncio.to_thread(self._log.of, dataset, request.branch, limit=SHOWN)
        return json_response({"dataset": dataset, "erasures": [_told(record) for record in records]})

    def _plans(self, branch: str) -> list[GraphPlan]:
        """Return what a branch serves, and what it turns to when that is ready."""
        needed = self._needed()
        if needed is None:
            return []
        names = [name for b in needed.standing.branches if b.name == branch for name in (b.serving, b.head) if name]
        return [needed.commits[name].plan for name in dict.fromkeys(names)]


def parsed(spec: DatasetSpec, body: object) -> tuple[tuple[Column, ...], list[list[object]]]:
    """Return the erase keys of a dataset, and their values in stored form, a list for each row of a request.

    Raises:
        InvalidInputError: The rows don't name exactly these keys, or a value doesn't fit.
        TooLargeError: There are too many rows.
    """
    rows = body.get("erase_keys") if isinstance(body, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError('erase_keys is expected to be a list of objects, such as [{"user": 1}]')
    if len(rows) > MAX_KEYS:
        raise TooLargeError(f"{len(rows):,} keys are too many for one request; {MAX_KEYS:,} are possible")
    where = f"erase in {spec.name}"
    types = {field.name: field.dtype for field in spec.fields if field.erase_key}
    columns = tuple(Column(name=name, dtype=types[name]) for name in spec.keys if name in types)
    spelled = ", ".join(types) or "none; mark one with field(key=True, erase_key=True)"
    if not columns:
        raise InvalidInputError(f"{where}: erase keys: {spelled}")
    if WINDOW_KEY in types and spec.pipelines:
        raise InvalidInputError(f"{where}: rows of an aggregation can't be erased by their window, only by their group")
    names = dict.fromkeys(name for row in rows for name in row)
    if wrong := [str(name) for name in names if name not in types]:
        raise InvalidInputError(f"{where}: {', '.join(wrong)} is no erase key; erase keys: {spelled}")
    given: list[list[object]] = []
    for column in columns:
        cast = ColumnCast(column.dtype)([row.get(column.name, MISSING) for row in rows])
        if cast.errors:
            row, message = next(iter(cast.errors.items()))
            raise InvalidInputError(f"{where}: row {row}, erase key {column.name}: {message}")
        if None in cast.values:
            raise InvalidInputError(f"{where}: erase key {column.name} is null in some row; each row needs a value")
        given.append(cast.values)
    return columns, [list(row) for row in zip(*given, strict=True)]


def topics_of(dataset: str, plans: Iterable[GraphPlan]) -> list[str]:
    """Return the topics with the records of a dataset; rows that an index writes for other jobs aren't among them."""
    found: dict[str, None] = {}
    for plan in plans:
        emitted = {index.emits.name for index in plan.indexes if index.emits is not None}
        found.update({t.name: None for t in plan.topics if t.dataset == dataset and t.name not in emitted})
    return list(found)


def erasure_by(key: ErasedKey) -> Erasure:
    """Return what a record on a topic says of an erased key."""
    return Erasure(key.columns, key.key_id, key.digest)


def _told(record: ErasureRecord) -> dict[str, object]:
    return {
        "request": record.key.request,
        "topic": record.key.topic,
        "columns": list(record.key.columns),
        "digest": record.key.digest.hex(),
        "account": record.key.account,
        "asked_at": record.asked_at.isoformat(),
        "recorded_at": None if record.recorded_at is None else record.recorded_at.isoformat(),
        "places": [{"place": place, "done_at": at.isoformat()} for place, at in record.places],
    }


class Eraser:
    """Learns what is to be erased and does it, in a thread."""

    def __init__(
        self,
        log: ErasureLog,
        erased: ErasedKeys,
        index: Removing,
        writer: TopicWriter,
        *,
        archive: tuple[ErasedRows, ObjectFolder],
        member: str,
        needed: Callable[[], Needed | None],
    ) -> None:
        """Prepare.

        Args:
            log: What was asked for, and what is done.
            erased: Gets what is to be hidden.
            index: The index of this server.
            writer: Writes the records.
            archive: Tells which rows of the archive go, and the archive.
            member: The name of this server, for what it has done.
            needed: Tells which topics there are.
        """
        self._log = log
        self._erased = erased
        self._index = index
        self._writer = writer
        self._rows, self._objects = archive
        self._searched = -1
        self._place = f"index of {member}"
        self._needed = needed
        self._number = 0
        self._known: dict[tuple[str, Erasure], int] = {}
        self._met: set[bytes] = set()
        # What is done and not written down yet, by place.
        self._untold: dict[str, set[int]] = {}
        self._refreshing = threading.Lock()
        self._recurring = Recurring("eraser", self._erase, INTERVAL_S, at_once=True)

    def start(self) -> None:
        """Begin."""
        self._recurring.start()

    def stop(self, timeout_s: float) -> None:
        """End after what is in hand."""
        self._recurring.stop(timeout_s)

    def ask(self, keys: Sequence[ErasedKey]) -> int:
        """Write down what is to be erased, and stop showing it; return how many of the keys are new.

        Raises:
            UnavailableError: Postgres doesn't answer; nothing is erased.
        """
        new = self._log.add(keys)
        self.refresh()
        self._recurring.wake()
        return new

    def refresh(self) -> None:
        """Learn what is to be erased, and hide it.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        with self._refreshing:
            while records := self._log.since(self._number):
                for record in records:
                    key, erasure = record.key, erasure_by(record.key)
                    self._known[key.topic, erasure] = record.id
                    self._erased.add(key.topic, [erasure])
                    self._rows.watch(key.dataset, key.topic)
                self._number = records[-1].id

    def _erase(self) -> None:
        # Before the graph is read, the tables may not be there yet.
        if self._needed() is not None:
            self.write_records()
            self.remove()

    def write_records(self) -> None:
        """Write the records that aren't on their topics yet; one that is written twice says the same again.

        Raises:
            UnavailableError: Postgres or Kafka doesn't answer.
        """
        needed = self._needed()
        if needed is None:
            return
        topics = {topic.name for planned in needed.commits.values() for topic in planned.plan.topics}
        written = []
        try:
            for record in self._log.unrecorded():
                # Of a topic that nobody needs any more, which goes with all of its rows, there is nothing to tell.
                if record.key.topic in topics:
                    message = encode_erasure(erasure_by(record.key))
                    self._writer.write_to_all(record.key.topic, *message).result(WRITE_TIMEOUT_S)
                written.append(record.id)
        except (KafkaException, TimeoutError) as error:
            raise UnavailableError(f"Kafka doesn't take the record of an erasure: {error}") from error
        finally:
            if written:
                self._log.recorded(written)

    def remove(self) -> None:
        """Remove what there is of erased keys, and tell what is done.

        Raises:
            UnavailableError: Postgres doesn't answer, or the index refuses.
        """
        waiting = self._index.erasures(pending=True)
        if any(plan.asset not in self._met for plan, _ in waiting):
            # What was removed before the last start; it may not have been told.
            for plan, gone in self._index.erasures(pending=False):
                self._done(self._place, plan.topic, gone)
                self._met.add(plan.asset)
        for plan, left in waiting:
            if left and self._index.remove_erased(plan, self._recurring.stopping):
                LOG.info("removed erased keys from an index", dataset=plan.dataset, keys=len(left))
                self._done(self._place, plan.topic, left)
        # What was written before others knew is found the next time; so is what a crash has left.
        number = self._number
        if number > self._searched:
            undone = [n for n in self._log.undone(PLACE) if n <= number]
            if not undone or self._rows.sweep(self._objects, self._recurring.stopping):
                self._untold.setdefault(PLACE, set()).update(undone)
                self._searched = number
        for place, numbers in self._untold.items():
            if numbers:
                self._log.done(numbers, place)
                numbers.clear()

    def _done(self, place: str, topic: str, erasures: Iterable[Erasure]) -> None:
        numbers = (self._known.get((topic, erasure)) for erasure in erasures)
        self._untold.setdefault(place, set()).update(number for number in numbers if number is not None)
