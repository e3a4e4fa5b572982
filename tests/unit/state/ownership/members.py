"""A group and its things in memory: the rules of `caraway.state.ownership.members` in a few lines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from typing_extensions import override

from caraway.errors import UnavailableError
from caraway.state.ownership.members import ENGINES, NOBODY, Member, Owned, Owners, member_name, node_of

# Nothing connects to it.
NO_DATABASE = sa.create_engine("postgresql+psycopg://nowhere")


@dataclass
class Table:
    """The stored state. `alive` are the members by the name of their node; the test removes those that expire."""

    tokens: dict[str, int] = field(default_factory=dict)
    alive: dict[str, int] = field(default_factory=dict)
    things: dict[str, Owned] = field(default_factory=dict)
    away: bool = False
    answers_get_lost: bool = False

    def join(self, node: str) -> "MemoryMember":
        self.tokens[node] = self.tokens.get(node, 0) + 1
        self.alive[node] = self.tokens[node]
        return MemoryMember(engine=NO_DATABASE, group=ENGINES, node=node, token=self.tokens[node], table=self)

    def owned(self, thing: str) -> Owned:
        return self.things.get(thing, Owned(member=NOBODY, token=0))

    @property
    def members(self) -> frozenset[str]:
        return frozenset(member_name(node, token) for node, token in self.alive.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMember(Member):
    table: Table

    @override
    def look(self) -> Owners:
        self._reach()
        owned = {thing: owned for thing, owned in self.table.things.items() if owned.member != NOBODY}
        return Owners(members=self.table.members, owned=owned)

    @override
    def take_free(self, things: Collection[str], *, successor: bool) -> Mapping[str, int]:
        taken = {}
        for thing in things:
            owned = self.table.owned(thing)
            if owned.member not in self.table.members:
                ended = owned.member == NOBODY or (successor and node_of(owned.member) == self.node)
                taken[thing] = max(owned.token, 1) if ended else owned.token + 1
        return self._become(taken)

    @override
    def take_over(self, thing: str, seen: int) -> int | None:
        return self._become({thing: seen + 1} if self.table.owned(thing).token == seen else {}).get(thing)

    @override
    def give_up(self, things: Collection[str]) -> None:
        self._reach()
        for thing in things:
            owned = self.table.owned(thing)
            if owned.member == self.name:
                self.table.things[thing] = Owned(member=NOBODY, token=owned.token)
        self._answer()

    @override
    def forget(self, things: Collection[str]) -> None:
        self._reach()
        for thing in things:
            self.table.things.pop(thing, None)

    def _become(self, taken: Mapping[str, int]) -> Mapping[str, int]:
        self._reach()
        if self.name not in self.table.members:
            return {}
        for thing, token in taken.items():
            self.table.things[thing] = Owned(member=self.name, token=token)
        self._answer()
        return taken

    def _reach(self) -> None:
        if self.table.away:
            raise UnavailableError("away")

    def _answer(self) -> None:
        if self.table.answers_get_lost:
            raise UnavailableError("lost")
