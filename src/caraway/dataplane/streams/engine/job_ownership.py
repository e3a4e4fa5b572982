"""The jobs that one of several engines owns: it takes those assigned to it, and releases the others."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from caraway.errors import UnavailableError
from caraway.state.ownership.assignment import balanced
from caraway.state.ownership.members import Member, Owners, node_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedJobs:
    """The jobs that an engine owns at one moment, each with the folder of its checkpoint.

    Attributes:
        version: A number that grows with each change.
        folders: The folder of each job's checkpoint, by the job's id.
    """

    version: int = 0
    folders: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The jobs that are under way in an engine.

    Attributes:
        version: The version of the `OwnedJobs` that the engine has seen; it starts no job that was released before it.
        jobs: All jobs that are being started, run, or are being stopped.
    """

    version: int = 0
    jobs: frozenset[str] = frozenset()


class JobOwnership:
    """Tracks the jobs that this engine owns. One thread calls `exchange`; the rest may be called from any."""

    def __init__(
        self,
        member: Member,
        folder_for: Callable[[str, int], Path],
        *,
        successor: bool,
        grace_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Own jobs as `member`.

        Args:
            member: This engine's membership.
            folder_for: Returns the folder for the checkpoint of a job and a token.
            successor: True if the last process of this engine is known to have ended.
            grace_seconds: After an outage of the registry, how long a silent engine still counts as alive: it may have
                been cut off by the same outage.
            clock: Returns a time in seconds.
        """
        self._member = member
        self._folder_for = folder_for
        self._successor = successor
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._connected_at: float | None = None
        # Other threads read this object without a lock. So it is never changed, but replaced by a new one.
        self._owned = OwnedJobs()
        self._leaving: frozenset[str] = frozenset()
        # The version of `OwnedJobs` at which each job was released. Until the engine's loop has seen that version, it
        # may just be starting the job, so the job still counts as busy here.
        self._left: Mapping[str, int] = {}

    @property
    def name(self) -> str:
        """The name of this engine."""
        return self._member.name

    @property
    def owned(self) -> OwnedJobs:
        """The jobs that this engine must run."""
        return self._owned

    def may_report(self, job: str) -> bool:
        """Return whether this engine knows the state of a job; other engines report on the jobs that they run."""
        return job in self._owned.folders or job in self._leaving

    def folder(self, job: str) -> Path:
        """Return the folder of the checkpoint of a job. Raises `UnavailableError` if another engine owns the job."""
        folder = self._owned.folders.get(job)
        if folder is None:
            raise UnavailableError("another engine runs this job")
        return folder

    def exchange(self, wanted: Collection[str], work: Work) -> None:
        """Read the owners of all jobs, and take and release jobs according to the assignment.

        Args:
            wanted: The jobs that must run, in this engine or in others.
            work: The jobs that are under way in this engine, including those that it should stop.

        Raises `UnavailableError` if the registry doesn't answer.
        """
        try:
            self._exchange(wanted, work)
        except UnavailableError:
            self._connected_at = None
            raise

    def leave(self) -> None:
        """Release all jobs; all queries must have ended.

        Raises `UnavailableError` if the registry doesn't answer; the jobs become free when the membership ends.
        """
        jobs = {*self._owned.folders, *self._leaving}
        self._owned, self._leaving = OwnedJobs(version=self._owned.version + 1), frozenset()
        if jobs:
            self._member.give_up(jobs)

    def forget(self, gone: Collection[str]) -> None:
        """Delete the owners of jobs that are gone. Raises `UnavailableError` if the registry doesn't answer."""
        self._member.forget(gone)

    def _exchange(self, wanted: Collection[str], work: Work) -> None:
        seen = self._member.look()
        now = self._clock()
        if self._connected_at is None:
            self._connected_at = now
        me = self._member.name
        owners = {job: owned.member for job, owned in seen.owned.items()}
        mine = {job for job, owner in owners.items() if owner == me}
        due = {job for job, engine in balanced(wanted, {*seen.members, me}, owners).items() if engine == me}
        held = self._owned.folders
        for job in held.keys() - mine:
            log.error("another engine has taken job %s: it is stopped here", job)
        self._hold({job: folder for job, folder in held.items() if job in mine and job in due})
        self._leaving = frozenset((held.keys() | self._leaving) & mine) - self._owned.folders.keys()
        busy = {*work.jobs, *(job for job, version in self._left.items() if version > work.version)}
        # Postgres has this engine as the owner of these jobs, but it doesn't run them. Either their queries have ended
        # after the release, or Postgres' answer to `take_free` was lost.
        ended = mine - self._owned.folders.keys() - busy
        if ended:
            self._member.give_up(ended)
            self._leaving -= ended
        in_grace = now - self._connected_at < self._grace_seconds
        free = {job for job in due - mine - busy if self._is_free(job, seen, in_grace=in_grace)}
        if free:
            self._take(free)

    def _hold(self, folders: Mapping[str, Path]) -> None:
        if folders == self._owned.folders:
            return
        version = self._owned.version + 1
        given_up = dict.fromkeys(self._owned.folders.keys() - folders.keys(), version)
        self._left = {job: at for job, at in {**self._left, **given_up}.items() if job not in folders}
        self._owned = OwnedJobs(version=version, folders=folders)

    def _is_free(self, job: str, seen: Owners, *, in_grace: bool) -> bool:
        owned = seen.owned.get(job)
        if owned is None or owned.member in seen.members:
            return owned is None
        # The owner is no member any more. In the grace period it may come back, unless it is an earlier process of this
        # engine, whose lease this process has taken over. So the jobs of such a process are free at once.
        return not in_grace or node_of(owned.member) == self._member.node

    def _take(self, jobs: Collection[str]) -> None:
        taken = self._member.take_free(jobs, successor=self._successor)
        for job, token in sorted(taken.items()):
            log.info("this engine has job %s with token %d", job, token)
            self._hold({**self._owned.folders, job: self._folder_for(job, token)})
