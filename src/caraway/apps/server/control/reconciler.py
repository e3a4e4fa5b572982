"""The reconciler of a deployment: it works off the ledger in Postgres, against Kafka, the engines and the index."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Self

from caraway.apps.server.control.service import CheckFunctions, CheckSink, CommitService, TrySources, find_all
from caraway.apps.server.control.slot_demand import SlotDemand, find_slot_demand
from caraway.apps.server.control.worker import sweep, work
from caraway.apps.server.control.world import Deployed
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.topics.admin import drop_topics, ensure_topics, topic_names
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.positions import TopicEnds
from caraway.graph.plan.model import GraphPlan
from caraway.graph.secrets.references import LookUp
from caraway.state.asset_store import KEEP
from caraway.state.branches import Branches
from caraway.state.database import connect
from caraway.state.ledger import Ledger
from caraway.state.reader import StateReader
from caraway.state.registry import JobPauses
from caraway.state.writer import StateWriter

# The most actions in a batch. After each batch, `reconcile` releases its lock, so that a commit can take it, and
# `converge` checks whether its time is up.
BATCH = 50
# A commit waits at most this long for its actions, such as creating topics; the rest happens in the background.
CONVERGE_S = 10.0
SWEEP_S = 60.0
# If an action is due within this time, `busy` is true, and the thread that calls `reconcile` calls it again after a
# short pause instead of a long one.
SOON = timedelta(seconds=5)
# To estimate the records that aren't archived yet, at most this many of the last messages of a partition are read. Rows
# that were logged one by one after a large request would stand for all of them in a small sample.
COUNTED_MESSAGES = 1_000


class LedgerReconciler:
    """Works off the ledger. Thread safe: one caller works at a time, and the others find less or nothing left to do."""

    def __init__(
        self,
        ledger: Ledger,
        world: Deployed,
        check: Callable[[], object],
        *,
        list_topics: Callable[[], Collection[str]],
        drop: Callable[[Iterable[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do in `world` what `ledger` asks for.

        `check` raises if nothing can be done now; `list_topics` returns all topics of Kafka, and `drop` removes some.
        """
        self.check = check
        self._ledger = ledger
        self._world = world
        self._list_topics = list_topics
        self._drop = drop
        self._clock = clock
        self._working = threading.Lock()
        self._swept_at: float | None = None
        self.busy = True
        """True if the last look at the ledger found an action that is due, or will be soon."""

    def converge(self) -> None:
        """Do all actions that can be done at once, until none is left or the time is up.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        deadline = self._clock() + CONVERGE_S
        with self._working:
            while work(self._ledger, self._world, limit=BATCH) and self._clock() < deadline:
                pass

    def reconcile(self) -> None:
        """Do the actions that are due, and once a minute remove topics that came back; callers repeat it for ever.

        Raises `UnavailableError` if Postgres or Kafka doesn't answer.
        """
        with self._working:
            self.busy = self._ledger.expects(SOON)
            if self.busy:
                work(self._ledger, self._world, limit=BATCH)
            now = self._clock()
            if self._swept_at is None or now - self._swept_at > SWEEP_S:
                # The time is set before the sweep, so that a failing sweep isn't repeated at once. While Kafka is
                # unreachable, a sweep takes long.
                self._swept_at = now
                sweep(self._ledger, self._list_topics(), self._drop)


class Control:
    """The control plane of a deployment: commits, branches, history, ledger, pauses of jobs."""

    def __init__(
        self,
        reconciler: LedgerReconciler,
        commits: CommitService,
        branches: Branches,
        pauses: JobPauses,
        close: Callable[[], None],
    ) -> None:
        """Keep the parts; `connect` creates them."""
        self.reconciler = reconciler
        self.commits = commits
        self.branches = branches
        self.pauses = pauses
        self.close = close

    @classmethod
    def connect(
        cls,
        postgres_url: str,
        bootstrap_servers: str,
        *,
        partitions: int = 1,
        processors: int | None = None,
        kafka_timeout_s: float = 30.0,
        keep: timedelta = KEEP,
        index_lag: Callable[[str], str] = "no server indexes {} here".format,
        look_up: LookUp = find_all,
        try_sources: TrySources = lambda _: (),
        check_sink: CheckSink = lambda _: None,
        check_functions: CheckFunctions = lambda functions: [""] * len(functions),
    ) -> Self:
        """Return the control plane for a Postgres and a Kafka; it opens no connection yet.

        Args:
            postgres_url: The URL of the Postgres that holds the state.
            bootstrap_servers: The Kafka brokers that hold the topics.
            partitions: Partitions of a new topic.
            processors: How many processors Spark's tasks share; None if unknown.
            kafka_timeout_s: How long to wait for Kafka, in seconds.
            keep: How long an asset is kept that no branch needs any more.
            index_lag: Returns what an index (its asset as hexadecimal) waits for, "" if it has caught up with its
                topic.
            look_up: Looks up the secrets that definitions name.
            try_sources: Connects to sources, and returns a line for each that can't be read.
            check_sink: Checks that a new sink can be written.
            check_functions: Returns for each pickled function why it can't run here, "" if it can.
        """
        engine = connect(postgres_url)
        reader, ledger = StateReader(engine), Ledger(engine, keep=keep)

        make = partial(ensure_topics, bootstrap_servers, partitions=partitions, timeout_s=kafka_timeout_s)
        drop = partial(drop_topics, bootstrap_servers, timeout_s=kafka_timeout_s)
        there = partial(topic_names, bootstrap_servers, timeout_s=kafka_timeout_s)
        world = Deployed(make_topics=make, drop_topics=drop, job=reader.job, index_lag=index_lag)
        # Kafka counts as usable if it lists its topics, so `there` is also the check of Kafka.
        reconciler = LedgerReconciler(ledger, world, there, list_topics=there, drop=drop)
        counting, ends, reports = threading.Lock(), TopicEnds(bootstrap_servers), ArchiveReports(engine)

        def count(topics: Iterable[str]) -> Mapping[str, int]:
            names = set(topics)
            with counting:
                end = ends.ends(names)
            # New jobs also read what only the archive still has. Its number of records is known, so only the messages
            # behind its tables are counted by a sample.
            tables = {name: table.report for name, table in reports.all().items() if name in end}
            positions = {name: table.positions for name, table in tables.items()}
            messages = Counter[str]()
            for name, offsets in end.items():
                reached = positions.get(name, {})
                messages[name] = sum(max(0, offset - reached.get(p, 0)) for p, offset in offsets.items())
            sizes = records_per_message(bootstrap_servers, +messages, sample=COUNTED_MESSAGES, since=positions)
            waiting = {name: round(sizes[name] * count) for name, count in (+messages).items()}
            return {name: waiting.get(name, 0) + (tables[name].size.rows if name in tables else 0) for name in end}

        def slots(plan: GraphPlan, created: Container[str]) -> SlotDemand | None:
            return find_slot_demand(plan, created, reader.running_jobs, partitions=partitions, processors=processors)

        writer = StateWriter(engine, keep=keep)
        commits = CommitService(
            reader,
            writer,
            reconciler,
            count=count,
            look_up=look_up,
            slots=slots,
            try_sources=try_sources,
            check_sink=check_sink,
            check_functions=check_functions,
        )
        return cls(reconciler, commits, Branches(engine, keep=keep), JobPauses(engine), engine.dispose)
