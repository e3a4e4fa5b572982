"""The division of the topics among the processes that archive, and their loop."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from caraway.dataplane.archive.downstream import DownstreamErasures
from caraway.dataplane.archive.erasing import TableErasures
from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served import SERVED_PLAN, ServedRemoval
from caraway.dataplane.archive.store.model import archived_topics, topic_folder
from caraway.dataplane.archive.trimming import Trimming
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import UnavailableError
from caraway.graph.plan.model import JobPlan, TopicPlan
from caraway.state.allocation import AssetState
from caraway.state.blueprints import AssetKind
from caraway.state.ownership.assignment import chosen
from caraway.state.ownership.leases import HeldLease
from caraway.state.ownership.members import Member
from caraway.state.plans import Plans
from caraway.state.reader import StateReader

LOG = structlog.get_logger(__name__)

# How long the lease of an archive process lasts without a renewal. After that the process counts as ended, and others
# take over its topics. If two processes write one table, it refuses the second one, so nothing depends on exact times.
LASTING = timedelta(seconds=10)
RENEW_SECONDS = 2.0
LOOK_SECONDS = 2.0
IDLE_SECONDS = 0.5
CLEAR_SECONDS = 60.0
WAITS, GOES_ON = "the archive waits", "the archive goes on with its topics"


class Archiver:
    """Archives this process's share of the topics until it is stopped."""

    def __init__(
        self,
        follower: Follower,
        state: StateReader,
        member: Member,
        *,
        erasures: TableErasures,
        downstream: DownstreamErasures,
        served: ServedRemoval,
        reports: ArchiveReports,
        objects: ObjectFolder,
        trimming: Trimming,
    ) -> None:
        """Archive the topics of all branches, and that of served features.

        Args:
            follower: Archives those of the topics that are this process's.
            state: The commits of the branches.
            member: The membership of this process in the group that divides the topics.
            erasures: The keys whose rows are to be removed from tables.
            downstream: Removes rows of erased keys from topics and tables.
            served: The same for the table of served features.
            reports: The tables that there are.
            objects: The object store, from which the tables of removed topics are removed.
            trimming: Removes from topics what is archived.
        """
        self._trimming = trimming
        self._trimmed_at = time.monotonic()
        self._follower = follower
        self._state = state
        self._erasures = erasures
        self._downstream = downstream
        self._served = served
        self._reports = reports
        self._objects = objects
        self._plans = Plans(state)
        self._needed: frozenset[str] = frozenset()
        self._cleared_at = time.monotonic()
        self._member = member
        self._lease = HeldLease(member.lease, LASTING, renew_s=RENEW_SECONDS)
        self._stopping = threading.Event()
        self._looked_at = float("-inf")
        self._topics: Mapping[str, TopicPlan] = {}
        # The reason of the last logged failure, by the text of the log's event, so that the same reason isn't logged
        # repeatedly.
        self._failures: dict[str, str] = {}

    def stop(self) -> None:
        """Ask the loop to end; may be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Archive until `stop` is called, and then write what waits."""
        try:
            while not self._stopping.is_set():
                try:
                    self._round()
                except UnavailableError as error:
                    self._note(WAITS, str(error))
                    self._stopping.wait(LOOK_SECONDS)
                else:
                    self._failures.pop(WAITS, None)
            self._follower.flush()
        finally:
            self._follower.close()
        self._leave()

    def _round(self) -> None:
        if time.monotonic() >= self._looked_at + LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._look()
        if self._topics:
            self._follower.step()
        else:
            self._stopping.wait(IDLE_SECONDS)

    def _look(self) -> None:
        """Read which topics are this process's, and what is erased; without Postgres, go on as before."""
        try:
            topics = self._share()
            # `_served` is refreshed before `_erasures`, so that `_erasures` knows every erasure that `_served` knows.
            # So keys are hidden in new rows before `_served` removes the old rows.
            self._served.refresh()
            self._erasures.refresh()
            if time.monotonic() >= self._cleared_at + CLEAR_SECONDS:
                self._cleared_at = time.monotonic()
                self.clear()
            if time.monotonic() >= self._trimmed_at + self._trimming.interval_s:
                self._trimmed_at = time.monotonic()
                self.trim()
        except UnavailableError as error:
            self._note(GOES_ON, str(error))
            return
        self._failures.pop(GOES_ON, None)
        if topics.keys() != self._topics.keys():
            self._topics = topics
            self._follower.follow(topics)
        for topic, numbers in list(self._erasures.pending.items()):
            if topic in topics and self._follower.erase(topic):
                self._erasures.done(topic, list(numbers))
        self._downstream.step(self._follower, topics, self._jobs)
        if SERVED_PLAN.name in topics:
            self._served.step(self._follower)

    def _share(self) -> Mapping[str, TopicPlan]:
        # A restarted archive process has the name of the process before it, which has ended. So it takes the lease of
        # that name at once, and doesn't wait until the lease expires.
        if not self._lease.keep(succeeds=True) or self._lease.token is None:
            return self._topics
        name = replace(self._member, token=self._lease.token).name
        members = {*self._member.look().members, name}
        needed = self._plans.refresh()
        topics = archived_topics(planned.plan for planned in needed.commits.values())
        topics[SERVED_PLAN.name] = SERVED_PLAN
        self._needed = frozenset(topics)
        return {topic: plan for topic, plan in topics.items() if chosen(topic, members) == name}

    def clear(self) -> None:
        """Remove the tables of topics that are removed."""
        left = self._reports.all().keys() - self._needed
        if not left:
            return
        gone = {a.name for a in self._state.assets() if a.kind is AssetKind.TOPIC and a.state is AssetState.GONE}
        for topic in left & gone:
            self._objects.remove_folder(topic_folder(topic))
            self._reports.forget(topic)
            self._downstream.forget(topic)
            LOG.info("removed the table of a topic that is removed", topic=topic)

    def trim(self) -> None:
        """Remove from this process's topics what is archived, is old enough, and was processed by all jobs.

        Raises `UnavailableError` if Postgres or the broker doesn't answer.
        """
        if not self._trimming.is_on:
            return
        self._trimming.trim(self._follower.archived(), self._jobs())

    def _jobs(self) -> list[tuple[JobPlan, Mapping[str, Any]]]:
        """Return all jobs that are to run, each with the figures that its engine reported last."""
        records = {job.job_id: job for job in self._state.jobs()}
        jobs = {job.job_id: job for planned in self._plans.refresh().commits.values() for job in planned.plan.jobs}
        return [(plan, records[name].progress if name in records else {}) for name, plan in jobs.items()]

    def _note(self, event: str, reason: str) -> None:
        """Log a failure, unless it is the same as the last one."""
        if reason != self._failures.get(event):
            LOG.warning(event, reason=reason)
        self._failures[event] = reason

    def _leave(self) -> None:
        try:
            self._lease.release()
        except UnavailableError as error:
            LOG.info("the topics of this archive become free when its lease expires", reason=str(error))
