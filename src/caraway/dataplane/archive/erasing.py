"""Erased keys in the archive: their rows are left out of what is written, and removed from what was written before."""

from collections.abc import Collection, Mapping

from caraway.dataplane.topics.erased_keys import ErasedKeys, HidesRecord
from caraway.dataplane.topics.erasure_places import ARCHIVE
from caraway.graph.plan.model import TopicPlan
from caraway.state.erasures import ErasureLog, erasure_by


class TableErasures:
    """The keys that are erased on topics, and those of them that tables may still have. Not thread safe.

    A key is erased in a scope, which is a topic or a part of one, and each topic has one table, so the archive is one
    place for each erasure.

    Its methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, log: ErasureLog, erased: ErasedKeys) -> None:
        """Read requests from `log`, and hide their keys by `erased`."""
        self._log = log
        self._erased = erased
        self._number = 0
        self._pending: dict[str, set[int]] = {}

    def refresh(self) -> None:
        """Read the keys that were erased since the last call, and hide them from then on."""
        found = []
        while records := self._log.since(self._number):
            for record in records:
                self._erased.add(record.key.topic, [erasure_by(record.key)])
            found += records
            self._number = records[-1].id
        if found:
            undone = set(self._log.undone(ARCHIVE))
            for record in found:
                # Erasures downstream aren't done here: `caraway.dataplane.archive.downstream` removes their rows from
                # the table and from the topic, in this order.
                if record.id in undone and not record.key.downstream:
                    self._pending.setdefault(record.key.topic, set()).add(record.id)

    @property
    def pending(self) -> Mapping[str, Collection[int]]:
        """The numbers of the erasures that tables may still have rows of, by topic."""
        return self._pending

    def hides(self, plan: TopicPlan) -> HidesRecord | None:
        """Return the check whether a record of a topic is erased; None if none is.

        Raises `UnavailableError` if this process lacks the secret with which keys are compared.
        """
        return self._erased.hides_record(plan.name, plan.schema)

    def done(self, topic: str, numbers: Collection[int]) -> None:
        """Note that the table of a topic has no rows of these erasures any more."""
        self._log.done(numbers, ARCHIVE)
        self._pending[topic].difference_update(numbers)
        if not self._pending[topic]:
            del self._pending[topic]
