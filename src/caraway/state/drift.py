"""The positions up to which the drift watch has profiled served features, which move together with the profiles.

The profiles of a pass are merged with those that are there, in the transaction that moves the positions. So a row is in
a profile once, whenever the process is killed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from caraway.compute.profiles.columns import ColumnProfile
from caraway.state.profiles import (
    HourKey,
    ProfileStore,
    Subject,
    merge_profiles,
    remove_old_profiles,
    remove_other_scopes,
)
from caraway.state.watched import WatchedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The profiles of a pass.

    Attributes:
        topic_id: The id of the topic of served features.
        since: The positions from which the pass began, by partition, as they were recorded.
        until: The positions up to which it has looked.
        columns: The profiles of the rows between them.
    """

    topic_id: str
    since: Mapping[int, int]
    until: Mapping[int, int]
    columns: Mapping[HourKey, ColumnProfile]


class DriftStore(WatchedStore):
    """Writes the profiles of served features, and removes old ones. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        super().__init__(engine, "drift", found="profiled")
        self.profiles = ProfileStore(engine, Subject.FEATURES)

    def add(self, found: Profiled, allowed: Callable[[sa.Connection], bool] = lambda _: True) -> bool:
        """Add the profiles of a pass, and return whether they count now.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def write(connection: sa.Connection) -> None:
            merge_profiles(connection, Subject.FEATURES, found.columns)

        return self._record(found.topic_id, found.since, found.until, write, allowed)

    def prune(self, before: datetime, branches: Collection[str]) -> None:
        """Remove the profiles of hours before a time, and all of other branches than these."""

        def remove(connection: sa.Connection) -> None:
            remove_old_profiles(connection, Subject.FEATURES, before)
            remove_other_scopes(connection, Subject.FEATURES, branches)

        self._in_transaction(remove, "remove old profiles of served features")
