"""Reads that don't show erased keys, from the moment that they are known to be erased."""

from collections.abc import Sequence
from typing import Protocol

from caraway.index.storage.keys import FIRST_TIME_US
from caraway.plan.model import Column, IndexPlan, RecordSchema
from caraway.topics import ErasedKeys, RecordCodec
from caraway.topics.erasure import Hides


class Rows(Protocol):
    """What holds rows (`caraway.index.IndexReader`)."""

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`."""
        ...


class ErasureFilter:
    """Reads as another reader does, but erased keys look as if they had never been. Thread safe."""

    def __init__(self, rows: Rows, erased: ErasedKeys) -> None:
        """Read from `rows` what `erased` doesn't hide."""
        self._rows = rows
        self._erased = erased

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`; see `IndexReader.read`.

        Raises:
            UnavailableError: As there; or this process can't tell which keys are erased.
        """
        return self._rows.read(plan, keys, visible(self._erased, plan, keys, at_us), columns)


def visible(
    erased: ErasedKeys, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int
) -> Sequence[int] | int:
    """Return the times at which keys are to be read: erased ones before the beginning of time, where none has anything.

    Raises:
        UnavailableError: This process can't tell which keys are erased.
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
    # The key of a read ends with the window, that of a record doesn't have it.
    decode = _codec(plan.keys).decode_key
    encode, columns = _codec(plan.schema.keys).encode_key, len(plan.schema.keys)
    return [hides(encode(decode(key)[:columns]) or b"") for key in keys]


def _codec(columns: Sequence[Column]) -> RecordCodec:
    return RecordCodec(RecordSchema(keys=tuple(columns), columns=tuple(columns), timestamp="", fingerprint=0))
