"""What a caller may do: modes, on entities by their tags, on branches."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What is done; each is granted by itself."""

    READ_DEFINITION = "read-definition"
    WRITE_DEFINITION = "write-definition"
    READ_DATA = "read-data"
    WRITE_DATA = "write-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One thing that a role allows.

    Attributes:
        modes: What may be done.
        tags: On entities with one of these tags, their own or inherited; None is on all, those without tags too.
        without: But on none with one of these.
        branches: On these branches; None is on all.
    """

    modes: frozenset[Mode]
    tags: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    branches: frozenset[str] | None = None

    def reaches(self, mode: Mode, branch: str) -> bool:
        """Return whether it is about a mode on a branch at all."""
        return mode in self.modes and (self.branches is None or branch in self.branches)

    def covers(self, tags: Collection[str]) -> bool:
        """Return whether it is about an entity with these tags."""
        return (self.tags is None or not self.tags.isdisjoint(tags)) and self.without.isdisjoint(tags)

    @property
    def of_all(self) -> bool:
        """Whether it is about all entities."""
        return self.tags is None and not self.without


EVERYTHING = Grant(modes=frozenset(Mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: an account, by one of its tokens, with all that its roles grant."""

    account: str
    token_id: str
    grants: tuple[Grant, ...]

    def may(self, mode: Mode, branch: str) -> bool:
        """Return whether something at least may be done in this way on a branch."""
        return any(grant.reaches(mode, branch) for grant in self.grants)

    def may_all(self, mode: Mode, branch: str) -> bool:
        """Return whether it may be done on all entities of a branch, whatever their tags."""
        return any(grant.of_all and grant.reaches(mode, branch) for grant in self.grants)

    def refused(self, mode: Mode, branch: str, entities: Iterable[tuple[str, Collection[str]]]) -> list[str]:
        """Return the names of the entities, given with their tags, on which it may not be done."""
        grants = [grant for grant in self.grants if grant.reaches(mode, branch)]
        return [name for name, tags in entities if not any(grant.covers(tags) for grant in grants)]


# Where no tokens are needed.
ANYBODY = Caller(account="", token_id="", grants=(EVERYTHING,))
