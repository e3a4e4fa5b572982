"""Loads of indexes: an index that lacks a long history gets it as tables, which many tasks build at once.

An index whose lag is long isn't followed meanwhile. Its tables are built by a process like those of offline queries
(`caraway.offline.loads`), and the index goes on with its topic behind them. If anything fails, it reads its topic as if
there were no loads.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import structlog

from caraway.apps.server.index_database import IndexDatabase
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan, JobPlan
from caraway.offline.loads.manifest import LoadManifest, is_loadable, read_manifest
from caraway.offline.queries.model import LoadRequest, OfflineQuery, OfflineRequest, QueryStatus, StoredRows, folder_of
from caraway.offline.queries.store import LOADS, OfflineQueries
from caraway.process.recurring import Recurring
from caraway.state.model import JobRecord
from caraway.state.plans import Needed

LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
# The number of looks at which nothing goes on, such as for lack of a process, before an index reads its topic itself:
# five minutes, in which it could have read some ten million records.
IDLE_LOOKS = 150
# The phases in which a job reads the history of its topics (`caraway.dataplane.streams.engine.phases`).
HISTORY = frozenset({"archive", "backfill"})
WORKFLOW = "load"


@dataclass(slots=True)
class Load:
    """A load that is under way.

    Attributes:
        database: The database that takes the tables.
        plan: The index.
        coming: The number of records that the job which writes the topic lacked at the last look.
        idle: The number of looks at which nothing went on.
    """

    database: IndexDatabase
    plan: IndexPlan
    coming: int | None = None
    idle: int = 0


def is_far(status: IndexStatus, limit: int, coming: int) -> bool:
    """Return whether an index lacks so much of its topic that it should be loaded.

    Args:
        status: The progress of the index.
        limit: The number of records that it may lack.
        coming: The number of records that are still to be written to its topic.
    """
    if status.lag is None:
        return False
    lacking = status.lag + coming
    return lacking > limit and lacking >= sum(status.offsets.values()) * status.records_per_message


def is_useful(query: OfflineQuery, status: IndexStatus, limit: int) -> bool:
    """Return whether tables that an earlier process has requested are still far ahead of an index."""
    if query.cancelled or query.status in {QueryStatus.FAILED, QueryStatus.CANCELLED}:
        return False
    if query.cuts is None or not query.rows:
        return not query.status.is_over
    offsets = [
        (end, status.offsets[partition])
        for partition, end in query.cuts.get(status.topic, {}).items()
        if partition in status.offsets
    ]
    whole = sum(end for end, _ in offsets)
    ahead = sum(max(end - reached, 0) for end, reached in offsets)
    return bool(whole) and query.rows * ahead / whole > limit


def backlogs(plans: Iterable[JobPlan], jobs: Iterable[JobRecord]) -> dict[str, int]:
    """Return the topics that a job is filling with its history, each with the number of records that the job lacks."""
    topics = {plan.job_id: plan.output.name for plan in plans}
    found: dict[str, int] = {}
    for job in jobs:
        lag = job.progress.get("lag_records")
        if job.job_id in topics and job.progress.get("phase") in HISTORY:
            topic = topics[job.job_id]
            found[topic] = found.get(topic, 0) + (lag if isinstance(lag, int) else 0)
    return found


class IndexLoads(Recurring):
    """Decides which indexes are loaded, requests their tables, and has their databases take them."""

    def __init__(
        self,
        databases: Callable[[], Sequence[IndexDatabase]],
        queries: OfflineQueries,
        objects: ObjectFolder,
        *,
        limit: int,
        member: str,
        needed: Callable[[], Needed | None],
        jobs: Callable[[], Iterable[JobRecord]],
        wake: Callable[[], object],
    ) -> None:
        """Prepare; nothing is looked at before `start`.

        Args:
            databases: Returns the open databases of the index.
            queries: The records of offline queries, of which loads are a kind.
            objects: The object store, which has the tables.
            limit: The number of records that an index may lack; 0: no index is loaded.
            member: The name of this server.
            needed: Returns what the branches need, None before it was read once.
            jobs: Reads the jobs that run.
            wake: Has waiting requests looked at.
        """
        super().__init__("index-loads", self.look, LOOK_SECONDS)
        self._databases = databases
        self._queries = queries
        self._objects = objects
        self._limit = limit
        # Each server requests tables of its own, also for a shard. While a shard moves, two servers have its database
        # open: one lacks a history, and the other one answers reads and must go on with its topic.
        self._own = sha256(member.encode()).hexdigest()[:12]
        self._needed = needed
        self._jobs = jobs
        self._wake = wake
        self._active: dict[str, Load] = {}
        # The loads that are over, or that were given up. None is begun twice, so that an index that can't be loaded
        # isn't held up again and again.
        self._over: set[str] = set()
        self._has_looked = False
        self._failures = 0

    def look(self) -> None:
        """Look once at all indexes. Raises `UnavailableError` if Postgres or the object store doesn't answer."""
        needed = self._needed()
        if needed is None:
            return
        try:
            self._look(needed)
        except Exception:
            # No index waits for long for something that doesn't answer, or fails each time.
            self._failures += 1
            if self._failures >= IDLE_LOOKS:
                for query_id in list(self._active):
                    self._give_up(query_id, "the looks at it fail")
            raise
        self._failures = 0

    def _look(self, needed: Needed) -> None:
        plans = {plan.asset: plan for plan in needed.indexes if is_loadable(plan)} if self._limit else {}
        found = [
            (database, plans[asset], status)
            for database in self._databases()
            for status in database.worker.positions()
            if (asset := bytes.fromhex(status.asset)) in plans
        ]
        wanted = {self._query_id(database, plan): (database, plan, status) for database, plan, status in found}
        if self._has_looked and not self._active and not any(self._is_long(status) for _, _, status in found):
            return
        coming = backlogs(needed.jobs, self._jobs())
        asked = {query.id: query for query in self._queries.loads()}
        self._has_looked = True
        idle = {query.id for query in self._queries.waiting()} if asked else set()
        if any(query.status is QueryStatus.RUNNING and query.id not in idle for query in asked.values()):
            # The others wait for the load that is under way.
            idle = set()
        for query_id, (database, plan, status) in wanted.items():
            if query_id in self._over or not (status.offsets or query_id in self._active):
                continue
            query = asked.pop(query_id, None)
            if query is None:
                self._consider(query_id, Load(database, plan), status, coming.get(plan.topic), needed)
            elif query_id in self._active or is_useful(query, status, self._limit):
                load = self._active.setdefault(query_id, Load(database, plan))
                # A repair of the database may have had the index followed again.
                database.worker.hold(plan.asset)
                load.idle += query_id in idle
                self._go_on(load, query)
            else:
                self._discard(query)
        for query_id in self._active.keys() - wanted.keys():
            del self._active[query_id]
        known = {plan.asset.hex() for plan in needed.indexes}
        for query in asked.values():
            # Requests of this server that no index needs, or that were given up, and results for indexes that are gone.
            is_own = query.id.endswith(f"-{self._own}") and query.id not in wanted
            is_gone = query.status.is_over and query.request.load is not None and query.request.load.asset not in known
            if query.id in self._over or is_own or is_gone:
                self._discard(query)

    def _is_long(self, status: IndexStatus) -> bool:
        """Return whether an index may have to be loaded: it lacks some records, or what it lacks isn't known."""
        return status.lag is None or status.lag > 0

    def _query_id(self, database: IndexDatabase, plan: IndexPlan) -> str:
        shard = "" if database.shard is None else "-{}-of-{}".format(*database.shard)
        return f"{LOADS}{plan.asset.hex()}{shard}-{self._own}"

    def _consider(self, query_id: str, load: Load, status: IndexStatus, coming: int | None, needed: Needed) -> None:
        """Begin a load if the index lacks much, after the job that writes its topic has read its history."""
        if query_id not in self._active:
            if not is_far(status, self._limit, coming or 0) or not load.database.worker.hold(load.plan.asset):
                return
            self._active[query_id] = load
            LOG.info("an index is to be loaded by files", dataset=load.plan.dataset, lag=status.lag, job_lag=coming)
        load = self._active[query_id]
        load.idle = load.idle + 1 if coming == load.coming else 0
        load.coming = coming
        if coming is not None and load.idle < IDLE_LOOKS:
            # All of the machine works for the job until the job goes live, and the tables then have all of its rows.
            load.database.worker.hold(load.plan.asset)
            return
        load.idle = 0
        commits = (name for name, planned in needed.commits.items() if load.plan in planned.plan.indexes)
        commit = next(commits, None)
        if commit is None:
            self._give_up(query_id, "no commit has it")
            return
        number, shards = load.database.shard or (0, 1)
        request = OfflineRequest(
            inputs=(),
            outputs=(),
            timestamp_column="",
            rows=StoredRows(""),
            load=LoadRequest(asset=load.plan.asset.hex(), number=number, shards=shards),
        )
        # Loads have an account of their own, and so their turns among the queries of the callers. The account isn't "",
        # which is that of all callers of a server without tokens.
        self._queries.add(query_id, request, branch="", commit=commit, account=LOADS, workflow=WORKFLOW)
        self._wake()

    def _go_on(self, load: Load, query: OfflineQuery) -> None:
        """Take the tables of a load if they are ready; give it up if it failed, or nothing goes on."""
        if query.status is QueryStatus.SUCCEEDED:
            try:
                if self._take(load, query.id):
                    del self._active[query.id]
                    self._over.add(query.id)
                    self._discard(query)
                    return
            except UnavailableError as error:
                LOG.info("the tables of a load can't be taken now", dataset=load.plan.dataset, reason=str(error))
            load.idle += 1
        elif query.status.is_over:
            self._give_up(query.id, query.error or query.status.value)
            self._discard(query)
            return
        if load.idle >= IDLE_LOOKS:
            self._give_up(query.id, query.error or "no process goes on with it")
            self._discard(query)

    def _take(self, load: Load, query_id: str) -> bool:
        """Have the database take the tables of a load; return False if that isn't done."""
        store, worker = load.database.store, load.database.worker
        manifest = read_manifest(self._objects, query_id)
        if manifest.format != store.format.decode():
            raise UnavailableError(f"the tables have the format {manifest.format}")
        folder = store.begin_load()
        try:
            tables = []
            for number, table in enumerate(manifest.tables):
                if self.stopping.is_set():
                    return False
                tables.append(folder / f"{number}.sst")
                if self._objects.fetch(f"{folder_of(query_id)}/{table.name}", tables[-1]) != table.digest:
                    raise UnavailableError(f"the table {table.name} isn't the one that was written")
            taken = worker.load(load.plan.asset, tables, manifest.offsets)
        finally:
            store.end_load()
        if taken:
            _log_taken(load, manifest)
        return taken

    def _give_up(self, query_id: str, reason: str) -> None:
        """Have an index read its topic itself, until the next start of the server."""
        load = self._active.pop(query_id)
        self._over.add(query_id)
        LOG.warning("an index isn't loaded by files, and reads its topic", dataset=load.plan.dataset, reason=reason)
        load.database.worker.release(load.plan.asset)

    def _discard(self, query: OfflineQuery) -> None:
        """Remove a request and its tables; one that isn't over is cancelled, and removed at a later look."""
        if not query.status.is_over:
            self._queries.cancel(query.id)
            self._has_looked = False
            return
        self._objects.remove_folder(folder_of(query.id))
        self._queries.forget(query.id)


def _log_taken(load: Load, manifest: LoadManifest) -> None:
    size = sum(table.bytes for table in manifest.tables)
    LOG.info("an index was loaded by files", dataset=load.plan.dataset, records=manifest.records, bytes=size)
