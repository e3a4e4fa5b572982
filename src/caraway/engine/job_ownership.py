"""The jobs that one of several engines runs: it takes what falls to it, and gives up what falls to others."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from caraway.engine.sharing import assigned
from caraway.errors import UnavailableError

log = logging.getLogger(__name__)


class SeenOwners(Protocol):
    """What of `caraway.state.job_owners.JobOwners` is used here."""

    @property
    def members(self) -> Collection[str]:
        """The engines that are alive."""

    @property
    def owners(self) -> Mapping[str, str]:
        """Who has a job, dead or alive."""


class EngineMember(Protocol):
    """What of `caraway.state.EngineMembership` is used here; all of it may raise UnavailableError."""

    @property
    def name(self) -> str:
        """The name under which it holds jobs."""

    def look(self) -> SeenOwners:
        """Look who is there and who holds what."""

    def take(self, jobs: Collection[str], *, successor: bool) -> Mapping[str, int]:
        """Take those of the jobs that no member holds, and return their tokens."""

    def give_up(self, jobs: Collection[str]) -> None:
        """Let others have jobs whose queries have ended."""

    def forget(self, jobs: Collection[str]) -> None:
        """Remove what is known of jobs that are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedJobs:
    """The jobs that an engine holds at one moment, each with the folder of its checkpoint.

    Attributes:
        version: Grows with each change.
        folders: By the ids of the jobs.
    """

    version: int = 0
    folders: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is under way in an engine.

    Attributes:
        version: That of the `OwnedJobs` which it follows: what was given up before it isn't begun any more.
        jobs: All jobs that are being started, run, or are being stopped.
    """

    version: int = 0
    jobs: frozenset[str] = frozenset()


class JobOwnership:
    """What this engine holds. `exchange` is for one thread; the rest may be asked by any."""

    def __init__(
        self,
        member: EngineMember,
        folder_for: Callable[[str, int], Path],
        *,
        successor: bool,
        grace_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hold jobs as `member`.

        Args:
            member: This engine among the others.
            folder_for: Returns the folder for the checkpoint of a job and a token.
            successor: Whether the last process that was this engine is known to have ended.
            grace_seconds: How long to wait, after having been cut off, before an engine that is silent counts as dead:
                it may have been cut off by the same.
            clock: Counts seconds.
        """
        self._member = member
        self._folder_for = folder_for
        self._successor = successor
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._connected_at: float | None = None
        # Replaced, never changed: other threads read them.
        self._owned = OwnedJobs()
        self._leaving: frozenset[str] = frozenset()
        # At which version a job was given up; before that is known to the engine, it may just be starting it.
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
        """Return whether this engine knows how a job is; other engines report the jobs that they run."""
        return job in self._owned.folders or job in self._leaving

    def folder(self, job: str) -> Path:
        """Return the folder of the checkpoint of a job.

        Raises:
            UnavailableError: Another engine has it.
        """
        folder = self._owned.folders.get(job)
        if folder is None:
            raise UnavailableError("another engine runs this job")
        return folder

    def exchange(self, wanted: Collection[str], work: Work) -> None:
        """Look who is there, and take and give up what follows from it.

        Args:
            wanted: The jobs that must run, here or elsewhere.
            work: What is under way here, whether it still should or not.

        Raises:
            UnavailableError: The registry doesn't answer.
        """
        try:
            self._exchange(wanted, work)
        except UnavailableError:
            self._connected_at = None
            raise

    def leave(self) -> None:
        """Give up everything; all queries must have ended.

        Raises:
            UnavailableError: The registry doesn't answer. What is held is free when the membership ends, too.
        """
        jobs = {*self._owned.folders, *self._leaving}
        self._owned, self._leaving = OwnedJobs(version=self._owned.version + 1), frozenset()
        if jobs:
            self._member.give_up(jobs)

    def forget(self, gone: Collection[str]) -> None:
        """Forget jobs that are gone.

        Raises:
            UnavailableError: The registry doesn't answer.
        """
        self._member.forget(gone)

    def _exchange(self, wanted: Collection[str], work: Work) -> None:
        seen = self._member.look()
        now = self._clock()
        if self._connected_at is None:
            self._connected_at = now
        me = self._member.name
        mine = {job for job, owner in seen.owners.items() if owner == me}
        due = {job for job, engine in assigned(wanted, {*seen.members, me}, seen.owners).items() if engine == me}
        held = self._owned.folders
        for job in held.keys() - mine:
            log.error("another engine has taken job %s: it is stopped here", job)
        self._hold({job: folder for job, folder in held.items() if job in mine and job in due})
        self._leaving = frozenset((held.keys() | self._leaving) & mine) - self._owned.folders.keys()
        busy = {*work.jobs, *(job for job, version in self._left.items() if version > work.version)}
        # Those that it has and doesn't hold, and never did, were taken by a request whose answer was lost.
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

    def _is_free(self, job: str, seen: SeenOwners, *, in_grace: bool) -> bool:
        owner = seen.owners.get(job)
        if owner is None or owner in seen.members:
            return owner is None
        # An older process of this very engine is no member any more, whatever the clock says.
        return not in_grace or owner.rpartition("#")[0] == self._member.name.rpartition("#")[0]

    def _take(self, jobs: Collection[str]) -> None:
        taken = self._member.take(jobs, successor=self._successor)
        for job, token in sorted(taken.items()):
            log.info("this engine has job %s with token %d", job, token)
            self._hold({**self._owned.folders, job: self._folder_for(job, token)})
