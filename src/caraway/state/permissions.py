"""Permissions of a caller: modes, on entities by their tags, on branches."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """The modes of access; each is granted by itself."""

    READ_DEFINITION = "read-definition"
    WRITE_DEFINITION = "write-definition"
    READ_DATA = "read-data"
    WRITE_DATA = "write-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One thing that a role allows.

    Attributes:
        modes: The modes that it allows.
        tags: It covers entities with one of these tags, their own or inherited; None: all entities, also without tags.
        without: It doesn't cover entities with one of these tags.
        branches: The branches on which it holds; None: all of them.
    """

    modes: frozenset[Mode]
    tags: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    branches: frozenset[str] | None = None

    def reaches(self, mode: Mode, branch: str) -> bool:
        """Return whether the grant allows a mode on a branch, at least for some entities."""
        return mode in self.modes and (self.branches is None or branch in self.branches)

    def covers(self, tags: Collection[str]) -> bool:
        """Return whether the grant covers an entity with these tags."""
        return (self.tags is None or not self.tags.isdisjoint(tags)) and self.without.isdisjoint(tags)

    @property
    def of_all(self) -> bool:
        """True if the grant covers all entities."""
        return self.tags is None and not self.without


EVERYTHING = Grant(modes=frozenset(Mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The account that sends a request, the token that it uses, and all that its roles grant."""

    account: str
    token_id: str
    grants: tuple[Grant, ...]

    def may(self, mode: Mode, branch: str) -> bool:
        """Return whether the caller may use a mode on at least some entities of a branch."""
        return any(grant.reaches(mode, branch) for grant in self.grants)

    def may_all(self, mode: Mode, branch: str) -> bool:
        """Return whether the caller may use a mode on all entities of a branch, whatever their tags."""
        return any(grant.of_all and grant.reaches(mode, branch) for grant in self.grants)

    def may_everywhere(self, mode: Mode) -> bool:
        """Return whether the caller may use a mode on all entities of all branches."""
        return any(grant.of_all and grant.branches is None and mode in grant.modes for grant in self.grants)

    def refused(self, mode: Mode, branch: str, entities: Iterable[tuple[str, Collection[str]]]) -> list[str]:
        """Return the names of those of the entities, given with their tags, on which the caller may not use a mode."""
        grants = [grant for grant in self.grants if grant.reaches(mode, branch)]
        return [name for name, tags in entities if not any(grant.covers(tags) for grant in grants)]


# The caller of every request to a server that requires no tokens, and of requests to public endpoints, which need no
# token on any server. This caller may do everything.
ANYBODY = Caller(account="", token_id="", grants=(EVERYTHING,))
