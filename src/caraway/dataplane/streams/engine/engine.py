"""The engine's loop: it reads the wanted jobs from the registry, runs them, and reports on them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from caraway.dataplane.streams.engine.driver import Driver
from caraway.dataplane.streams.engine.fencing import LASTING, Fence, checkpoint_for, current_checkpoint, remove_gone
from caraway.dataplane.streams.engine.heartbeat import BEAT_SECONDS, Heartbeat
from caraway.dataplane.streams.engine.job_ownership import JobOwnership, Work
from caraway.dataplane.streams.engine.jobs import Jobs, JobStatus
from caraway.dataplane.streams.engine.lag import Observer
from caraway.dataplane.streams.engine.link import RegistryLink
from caraway.dataplane.streams.engine.slots import SlotBook
from caraway.dataplane.streams.engine.spark_runtime import SparkRuntime, slots_offered
from caraway.dataplane.streams.spark.live import LiveRows
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.positions import TopicEnds
from caraway.graph.plan.model import JobPlan
from caraway.process.children.ending import on_request_to_end
from caraway.process.settings.settings import Settings
from caraway.state.ownership.members import Member
from caraway.state.registry import JobRegistry

log = logging.getLogger(__name__)

LOOP_SECONDS = 0.25
# The number of queries that are started at once. A start mostly waits for brokers and the JVM, so several can share a
# processor; more than three would only compete for it.
STARTERS = 3
STOP_JOBS_SECONDS = 5.0
LAST_REPORTS_SECONDS = 1.0

EXIT_STOPPED = 0
# EX_TEMPFAIL of sysexits.h. At this exit code, the supervising process starts the engine again.
EXIT_JVM_DIED = 75
EXIT_FENCED = 75


class Engine:
    """Runs the jobs of a registry until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        registry: JobRegistry,
        member: Member | None = None,
        *,
        open_driver: Callable[[Settings], Driver] = Driver.open,
        note_loss: Callable[[JobPlan, str, str], object] = lambda *_: None,
    ) -> None:
        """Run with `settings`, which must name the Kafka brokers.

        Engines that are given a `member` share the jobs; an engine without one runs all jobs. Each engine has a data
        folder of its own. `open_driver` starts Spark, and `note_loss` is that of `SparkRuntime`.

        Raises `ConfigurationError` if the settings name no brokers.
        """
        self._bootstrap_servers = sign_in(settings.kafka)
        self._settings = settings
        self._link = RegistryLink(registry)
        self._heartbeat = Heartbeat(settings.data_dir / "run" / "engine.json")
        self._stopping = threading.Event()
        self._fenced = threading.Event()
        self._member = member
        self._open_driver, self._note_loss = open_driver, note_loss
        self._fence = None if member is None else Fence(member.lease, self._lose)
        self._checkpoints = settings.spark.checkpoints or settings.data_dir / "checkpoints"

    def stop(self) -> None:
        """Ask the engine to end; may be called from a signal handler."""
        self._stopping.set()

    def run(self) -> int:
        """Run until `stop` is called or the JVM dies, and return the exit code of the process.

        Raises `UnavailableError` if another engine runs in this data folder.
        """
        self._heartbeat.start()
        # The link begins to poll Postgres now, so that the wanted jobs are known when Spark is ready, which takes some
        # seconds.
        self._link.start()
        started = time.monotonic()
        driver = self._open_driver(self._settings)
        log.info("Spark is ready after %.1f s", time.monotonic() - started)
        ownership = self._join(driver)
        self._link.begin(lambda gone: remove_gone(self._checkpoints, gone), ownership)
        ends = TopicEnds(self._bootstrap_servers)
        sizes_of = partial(records_per_message, self._bootstrap_servers)
        observer = Observer(ends.ends, LiveRows(driver.session).look, sizes_of, led_ends_of=ends.led_ends)
        observer.start()
        runtime = SparkRuntime(
            session=driver.session,
            bootstrap_servers=self._bootstrap_servers,
            partitions=self._settings.kafka.partitions,
            processors=self._settings.spark.processors,
            checkpoint_of=self._checkpoint if ownership is None else ownership.folder,
            checkpoint_interval_seconds=self._settings.spark.checkpoint_interval_seconds,
            observer=observer,
            slots=SlotBook(lambda: slots_offered(driver.session)),
            objects_url=self._settings.objects_url,
            note_loss=self._note_loss,
        )
        with ThreadPoolExecutor(STARTERS, thread_name_prefix="starter") as executor:
            jobs = Jobs(runtime, executor, time.monotonic)
            died = self._loop(driver, jobs)
            # An engine that has lost its lease doesn't report on its jobs: their next owner does.
            if not died and not self._fenced.is_set():
                wait(jobs.stop_all(), STOP_JOBS_SECONDS)
                self._link.report(jobs.reconcile([]), Work())
            observer.stop(0)
            # The JVM is closed first, so that calls which still wait for it fail at once, and the threads of the
            # executor end.
            driver.close()
            executor.shutdown(wait=False, cancel_futures=True)
        self._link.stop(LAST_REPORTS_SECONDS)
        self._heartbeat.stop(2 * BEAT_SECONDS)
        if self._fence is not None:
            self._fence.close(release=not self._fenced.is_set())
        if self._fenced.is_set():
            return EXIT_FENCED
        return EXIT_JVM_DIED if died else EXIT_STOPPED

    def _join(self, driver: Driver) -> JobOwnership | None:
        """Join the engines that share the jobs, if this engine is to be a member."""
        if self._member is None or self._fence is None:
            driver.require_lock()
            return None
        alone = driver.has_lock()
        token = self._fence.claim(self._stopping, alone=alone)
        if token is None:
            return None
        return JobOwnership(
            self._member.with_token(token),
            lambda job, of: checkpoint_for(self._checkpoints, job, of),
            successor=alone,
            grace_seconds=LASTING.total_seconds(),
        )

    def _checkpoint(self, job: str) -> Path:
        return current_checkpoint(self._checkpoints, job)

    def _lose(self) -> None:
        self._fenced.set()
        self._stopping.set()

    def _loop(self, driver: Driver, jobs: Jobs) -> bool:
        """Run until asked to stop; return whether the JVM died."""
        statuses: Mapping[str, JobStatus] = {}
        while not self._stopping.is_set():
            if driver.died:
                log.error("the JVM has died with exit code %s", driver.process.returncode)
                return True
            version, desired = self._link.desired
            try:
                # If another engine held the lock when this one started, this call takes the lock once that engine has
                # ended. Otherwise the other engine would find the lock free when it is started again.
                driver.has_lock()
                statuses = jobs.reconcile(desired) if desired is not None else {}
            except Exception:
                # A call into a dying JVM may raise any error. If the JVM still runs after two seconds, the error is a
                # bug of the engine.
                if not _within(2.0, lambda: driver.died):
                    raise
                continue
            self._link.report(statuses, Work(version=version, jobs=jobs.under_way))
            self._heartbeat.alive(ready=True, jobs=statuses)
            self._stopping.wait(LOOP_SECONDS)
        return False


def stop_on_signals(engine: Engine) -> None:
    """Stop `engine` in good order on SIGTERM and SIGINT."""

    def stop() -> None:
        log.info("stopping")
        engine.stop()

    on_request_to_end(stop)


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
