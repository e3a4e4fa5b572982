"""Engines' memberships and jobs in memory: the rules of `caraway.state.EngineMembership` in a few lines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from caraway.errors import UnavailableError


@dataclass(frozen=True)
class Seen:
    members: frozenset[str]
    owners: Mapping[str, str]


@dataclass
class Table:
    """The stored state. `alive` are the members by the name of their engine; the test removes those that expire."""

    tokens: dict[str, int] = field(default_factory=dict)
    alive: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, tuple[int, str]] = field(default_factory=dict)
    away: bool = False
    answers_get_lost: bool = False

    def join(self, engine_name: str) -> "MemoryMember":
        self.tokens[engine_name] = self.tokens.get(engine_name, 0) + 1
        self.alive[engine_name] = self.tokens[engine_name]
        return MemoryMember(self, engine_name, self.tokens[engine_name])

    @property
    def members(self) -> frozenset[str]:
        return frozenset(f"{engine_name}#{token}" for engine_name, token in self.alive.items())


@dataclass
class MemoryMember:
    table: Table
    engine_name: str
    token: int

    @property
    def name(self) -> str:
        return f"{self.engine_name}#{self.token}"

    def look(self) -> Seen:
        self._reach()
        return Seen(self.table.members, {job: owner for job, (_, owner) in self.table.jobs.items() if owner})

    def take(self, jobs: Collection[str], *, successor: bool) -> Mapping[str, int]:
        self._reach()
        if self.name not in self.table.members:
            return {}
        taken = {}
        for job in jobs:
            token, owner = self.table.jobs.get(job, (1, ""))
            if owner not in self.table.members:
                ended = not owner or (successor and owner.rpartition("#")[0] == self.engine_name)
                taken[job] = token if ended else token + 1
                self.table.jobs[job] = (taken[job], self.name)
        if self.table.answers_get_lost:
            raise UnavailableError("lost")
        return taken

    def give_up(self, jobs: Collection[str]) -> None:
        self._reach()
        for job in jobs:
            token, owner = self.table.jobs.get(job, (1, ""))
            if owner == self.name:
                self.table.jobs[job] = (token, "")
        if self.table.answers_get_lost:
            raise UnavailableError("lost")

    def forget(self, jobs: Collection[str]) -> None:
        self._reach()
        for job in jobs:
            self.table.jobs.pop(job, None)

    def _reach(self) -> None:
        if self.table.away:
            raise UnavailableError("away")
