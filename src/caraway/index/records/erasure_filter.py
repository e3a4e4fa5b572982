"""Reads that hide erased keys, as soon as this process knows that they are erased."""

from collections.abc import Sequence
from typing import Protocol

from caraway.index.storage.keys import FIRST_TIME_US
from caraway.plan.model import Column, IndexPlan, RecordSchema
from caraway.topics import ErasedKeys, RecordCodec
from caraway.topics.erasure import Hides


class Rows(Protocol):
    """A source of rows (`caraway.index.IndexReader`)."""

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Return the rows of `keys` as of `at_us`."""
        ...


class ErasureFilter:
    """A reader on top of another one that shows erased keys as if they had never had a row. Thread safe."""

    def __init__(self, rows: Rows, erased: ErasedKeys) -> None:
        """Return rows of `rows`, except those that `erased` hides."""
        self._rows = rows
        self._erased = erased

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Return the rows of `keys` as of `at_us`; see `IndexReader.read`.

        Raises:
            UnavailableError: As there; or this process lacks a secret to compare keys with erased ones.
        """
        return self._rows.read(plan, keys, visible(self._erased, plan, keys, at_us), columns)


def visible(
    erased: ErasedKeys, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int
) -> Sequence[int] | int:
    """Return the times at which to read the keys; for erased keys a time before all rows, at which nothing is found.

    Raises:
        UnavailableError: This process lacks a secret to compare keys with erased ones.
    """
    hides = erased.hides(plan.topic, plan.schema.keys)
    if hides is None:
        return at_us
    hidden = _hidden(plan, hides, keys)
    if not any(hidden):
        return at_us
    times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
    return [FIRST_TIME_US if gone else time_us for gone, time_us in zip(hidden, times, strict=True)]


def _hidden(plan: IndexPlan, hides: Hides, keys: Sequence[bytes]) -> list[bool]:
    if plan.window is None:
        return [hides(key) for key in keys]
    # The key of a read ends with the window, which the key of a record doesn't have.
    decode = _codec(plan.keys).decode_key
    encode, columns = _codec(plan.schema.keys).encode_key, len(plan.schema.keys)
    return [hides(encode(decode(key)[:columns]) or b"") for key in keys]


def _codec(columns: Sequence[Column]) -> RecordCodec:
    return RecordCodec(RecordSchema(keys=tuple(columns), columns=tuple(columns), timestamp="", fingerprint=0))
