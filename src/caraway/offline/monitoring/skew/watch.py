"""The passes of the skew watch: each computes a sample of the new served rows again, and records what it finds."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
import structlog
from typing_extensions import override

from caraway.compute.extractors.pool import FunctionPool
from caraway.dataplane.archive.erasing import TableErasures
from caraway.dataplane.archive.served import ServedErasures
from caraway.dataplane.archive.served_log import SERVED
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.store.model import archived_topics, table_path
from caraway.dataplane.archive.store.reading import cuts_now
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dtypes.instants import to_datetime
from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.graph.wire.graphs import decode_graph
from caraway.offline.monitoring.skew.history import PlacedTopics
from caraway.offline.monitoring.skew.reasons import Compared, Place, reasons
from caraway.offline.monitoring.skew.recomputing import CommitQueries, Failure, Question, json_text, recompute
from caraway.offline.monitoring.skew.sampling import ServedRow, draw
from caraway.offline.monitoring.watch import Kind, Watch
from caraway.offline.reader import SeriesReader
from caraway.process.confinement.configured import confinement_of
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.announcements import newest_erasure
from caraway.state.erasures import ErasureLog
from caraway.state.findings import MISMATCHES, CountKey, Finding, Findings, Sample
from caraway.state.plans import Planned, Plans
from caraway.state.reader import StateReader
from caraway.state.secrets import SecretStore
from caraway.state.skew import KEPT_SAMPLES, SkewStore

LOG = structlog.get_logger(__name__)

# The number of commits whose plans are kept in memory.
KEPT_PLANS = 8
# Each minute adds a number of rows to those that the watch may compute again. After a pause, the rows of at most this
# many minutes have added up.
MAX_CREDIT_MINUTES = 10.0
PRUNE_SECONDS = 3600.0
US = 1_000_000
MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The connections of a watch.

    Attributes:
        database: Postgres.
        erased: The erased keys.
        functions: The processes for users' functions, which the watch starts when it needs them.
        secrets: The values of secrets.
    """

    database: sa.Engine
    erased: ErasedKeys
    functions: FunctionPool
    secrets: SecretStore


class SkewWatch(Watch):
    """Computes samples of served features again. Not thread safe."""

    def __init__(self, settings: Settings, parts: Parts, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare; nothing is read yet. `clock` returns the time in seconds since the epoch."""
        self._settings = settings
        self._servers = sign_in(settings.kafka)
        self._parts = parts
        self._clock = clock
        self._store = SkewStore(parts.database)
        self._state = StateReader(parts.database)
        self._planned = lru_cache(maxsize=KEPT_PLANS)(Plans(self._state).planned)
        log = ErasureLog(parts.database)
        self._erasures = TableErasures(log, parts.erased)
        self._erased_rows = ErasedRows(parts.erased, lambda commit: decode_graph(self._state.graph(commit)))
        self._served_erasures = ServedErasures(log, self._erased_rows, lambda _: None)
        self._chance = random.Random()  # noqa: S311 (it draws samples, no secrets)
        self._credit = 0.0
        self._credited_at = clock() - MINUTE_SECONDS
        self._pruned_at = float("-inf")
        self._has_functions = False

    @override
    def run_once(self) -> bool:
        """Look at new rows, and return whether there were any.

        Raises `UnavailableError` if Postgres, the broker or the object store doesn't answer; the rows are then looked
        at again.
        """
        began = time.monotonic()
        self._prune()
        most = self._allowance()
        table = self._table() if most else None
        if table is None:
            return False
        # A key that is erased after this moment makes the findings void: see `_no_newer_erasure`.
        self._served_erasures.refresh()
        self._erasures.refresh()
        name = table.url.rpartition("/")[2]
        since = self._store.positions(name)
        partitions = TopicEnds(self._servers).ends([SERVED]).get(SERVED, {})
        drawn = draw(
            table,
            since,
            table.positions(partitions),
            served_before_us=int((self._clock() - self._settings.skew.delay_seconds) * US),
            most=most,
            hides=self._erased_rows.hides,
            chance=self._chance,
        )
        if all(end == since.get(partition, 0) for partition, end in drawn.until.items()):
            return False
        counted = _Counted()
        branches = {branch.name for branch in self._state.branch_heads().branches}
        rows = sorted((row for row in drawn.rows if row.branch in branches), key=attrgetter("commit"))
        for commit, of_commit in groupby(rows, key=attrgetter("commit")):
            self._compare(commit, list(of_commit), counted)
            self._parts.functions.end_unused(())
        findings = Findings(
            topic_id=name, since=since, until=drawn.until, counts=counted.counts, samples=counted.samples
        )
        if not self._store.add(findings, self._no_newer_erasure):
            raise UnavailableError("a key was erased, or another process has compared the same rows meanwhile")
        self._credit -= len(drawn.rows)
        LOG.info(
            "served features were compared",
            rows=len(rows),
            values=sum(counted.counts.values()),
            mismatches=sum(count for key, count in counted.counts.items() if key.finding in MISMATCHES),
            seconds=round(time.monotonic() - began, 3),
        )
        return True

    @override
    def close(self) -> None:
        """End the processes for users' functions."""
        self._parts.functions.stop()

    def _allowance(self) -> int:
        """Return how many rows may be computed again now."""
        now, a_minute = self._clock(), self._settings.skew.rows_per_minute
        more = a_minute * max(0.0, now - self._credited_at) / MINUTE_SECONDS
        self._credit = min(self._credit + more, a_minute * MAX_CREDIT_MINUTES)
        self._credited_at = now
        return max(0, int(self._credit))

    def _table(self) -> ArchiveTable | None:
        return ArchiveTable.existing(self._settings.objects_url, table_path(SERVED, topic_id(self._servers, SERVED)))

    def _compare(self, commit: str, rows: Sequence[ServedRow], counted: "_Counted") -> None:
        try:
            queries = self._queries(commit, self._planned(commit))
        except UnknownEntityError:
            # The topic may be shared with another deployment, which has commits of its own.
            LOG.debug("served features are of no commit of this deployment", commit=commit, rows=len(rows))
            return
        reader = queries.reader()
        for question, alike in _by_question(rows):
            try:
                self._compare_alike(queries, question, alike, counted, reader)
            except UnavailableError:
                raise
            except Exception as error:
                # An error in some rows must not keep the watch from looking at all later rows.
                known = isinstance(error, CarawayError)
                LOG.warning("served features can't be compared", commit=commit, exc_info=not known, reason=str(error))
                failed = dict.fromkeys(question.outputs, Finding.FAILED)
                for row in alike:
                    counted.add(row, failed, {}, str(error))

    def _queries(self, commit: str, planned: Planned) -> CommitQueries:
        cuts = cuts_now(self._servers, archived_topics([planned.plan]))
        return CommitQueries(
            commit,
            planned,
            PlacedTopics(self._servers, self._settings.objects_url, cuts),
            topics=frozenset(cuts),
            erased=self._parts.erased,
            compile_python=self._parts.functions.compiler(commit),
            memory_mb=self._settings.skew.memory_mb,
        )

    def _compare_alike(
        self,
        queries: CommitQueries,
        question: Question,
        rows: Sequence[ServedRow],
        counted: "_Counted",
        reader: SeriesReader,
    ) -> None:
        """Compare rows of one commit that have the same inputs and outputs."""
        unchecked = queries.unchecked(question, reader)
        checked = Question(question.inputs, tuple(name for name in question.outputs if name not in unchecked))
        if not checked.outputs:
            for row in rows:
                counted.add(row, unchecked, {}, "")
            return
        plan = queries.compiled(checked, reader)
        if plan.runs_user_code:
            self._start_functions()
        compared = Compared(checked, rows, recompute(plan, rows))
        why = reasons(queries, compared, reader)
        for number, (row, values) in enumerate(zip(rows, compared.recomputed, strict=True)):
            if isinstance(values, Failure):
                failed = dict.fromkeys(checked.outputs, Finding.FAILED)
                counted.add(row, unchecked | failed, {}, values.error)
            else:
                counted.add(row, unchecked | _found(checked, number, why), values, "")

    def _start_functions(self) -> None:
        self._parts.secrets.refresh()
        if not self._has_functions:
            self._parts.functions.start()
            self._has_functions = True

    def _no_newer_erasure(self, connection: sa.Connection) -> bool:
        """Return whether all erased keys are known to this watch, and keep others from being erased until the commit.

        The archive removes samples of an erased key after the request to erase it is recorded. So samples that are
        recorded before the request are removed, and later ones aren't of the key.
        """
        return newest_erasure(connection) <= self._served_erasures.number

    def _prune(self) -> None:
        now = self._clock()
        if now >= self._pruned_at + PRUNE_SECONDS:
            self._pruned_at = now
            before = to_datetime(int(now * US)) - timedelta(days=self._settings.skew.kept_days)
            self._store.prune(before, [branch.name for branch in self._state.branch_heads().branches])


class _Counted:
    """The counts and samples of a pass."""

    def __init__(self) -> None:
        self.counts: Counter[CountKey] = Counter()
        self.samples: list[Sample] = []
        self._sampled: Counter[tuple[str, str, Finding]] = Counter()

    def add(self, row: ServedRow, found: Mapping[str, Finding], values: Mapping[str, str], error: str) -> None:
        """Count the findings about the outputs of a row, given the values as they were computed again, or an error."""
        served_at = to_datetime(row.served_us)
        hour = served_at.replace(minute=0, second=0, microsecond=0)
        for name, finding in found.items():
            key = CountKey(branch=row.branch, commit=row.commit, feature=name, hour=hour, finding=finding)
            self.counts[key] += 1
            if finding in MISMATCHES or finding is Finding.FAILED:
                self._sample(row, name, finding, served_at, values.get(name, error))

    def _sample(self, row: ServedRow, name: str, finding: Finding, served_at: datetime, recomputed: str) -> None:
        kind = row.branch, name, finding
        if self._sampled[kind] >= KEPT_SAMPLES:
            return
        self._sampled[kind] += 1
        self.samples.append(
            Sample(
                branch=row.branch,
                commit=row.commit,
                feature=name,
                finding=finding,
                served_at=served_at,
                at=to_datetime(row.at_us),
                query=row.query,
                served=json_text(row.outputs[name]),
                recomputed=recomputed,
                partition=row.partition,
                offset=row.offset,
                row=row.row,
            )
        )


def _found(question: Question, number: int, why: Mapping[Place, Finding]) -> dict[str, Finding]:
    return {name: why.get((number, name), Finding.SAME) for name in question.outputs}


def _by_question(rows: Sequence[ServedRow]) -> Iterator[tuple[Question, list[ServedRow]]]:
    """Yield the rows that have the same inputs and outputs together."""
    found: dict[Question, list[ServedRow]] = {}
    for row in rows:
        found.setdefault(Question(tuple(row.inputs), tuple(row.outputs)), []).append(row)
    yield from found.items()


def _open(settings: Settings, database: sa.Engine) -> SkewWatch:
    secrets = SecretStore(database, open_keyring(settings.key_file))
    functions = FunctionPool(
        1,
        settings.offline.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
    )
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    return SkewWatch(settings, Parts(database, erased, functions, secrets))


SKEW = Kind(
    "skew", _open, enabled=lambda settings: settings.skew.enabled, seconds=lambda settings: settings.skew.seconds
)
