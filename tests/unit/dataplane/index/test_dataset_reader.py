"""The index as queries see it."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from caraway.compute.query.model import Reader
from caraway.dataplane.index.reader import MIN_ROWS_TO_SHARE, DatasetReader
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.structs import Window
from caraway.dtypes.types import DATETIME, INT, STRING, DataType
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema
from caraway.graph.windows import HoppingWindow


def plan(record_keys: Sequence[str]) -> IndexPlan:
    types: dict[str, DataType] = {"pot": INT, "room": STRING}
    keys = tuple(Column(name=name, dtype=types[name]) for name in record_keys)
    return IndexPlan(
        dataset="Pots",
        asset=b"12345678",
        kind=IndexKind.VERSIONS,
        topic="pots",
        schema=RecordSchema(keys=keys, columns=keys, timestamp="at", fingerprint=1),
        revised=False,
        aggregates=(),
        fields=(*(Column(name=n, dtype=t) for n, t in types.items()), Column(name="at", dtype=DATETIME)),
    )


class EchoIndex(Reader[IndexPlan, bytes]):
    """An index that returns the keys of each read as its rows."""

    def __init__(self) -> None:
        self.asked: list[list[object]] = []

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        self.asked = [msgspec.msgpack.decode(key) for key in keys]
        return [list(self.asked)], [key[0] != 0 for key in self.asked]


def test_keys_are_put_in_the_order_of_the_records() -> None:
    index = EchoIndex()
    DatasetReader(index, [plan(["room", "pot"])]).read("Pots", [(1, "a"), (2, "b")], 0, ["pot"])
    assert index.asked == [["a", 1], ["b", 2]]


def test_the_window_of_a_groupby_is_the_last_part_of_a_key() -> None:
    index, keyed = EchoIndex(), plan(["room", "pot"])
    window = Column(name="window", dtype=dtype_of(Window))
    hourly = replace(
        keyed, fields=(window, *keyed.fields), window=HoppingWindow(length_us=3_600_000_000, stride_us=3_600_000_000)
    )
    DatasetReader(index, [hourly]).read("Pots", [([0, 3_600_000_000], 1, "a")], 0, ["pot"])
    assert index.asked == [["a", 1, [0, 3_600_000_000]]]


def test_equal_keys_are_read_once_and_answered_in_order() -> None:
    index = EchoIndex()
    keys = [(i % 3, "a") for i in range(MIN_ROWS_TO_SHARE)]
    columns, found = DatasetReader(index, [plan(["pot", "room"])]).read("Pots", keys, 0, ["pot"])
    assert index.asked == [[0, "a"], [1, "a"], [2, "a"]]
    assert columns == [[list(key) for key in keys]]
    assert found == [key[0] != 0 for key in keys]


def test_keys_at_times_of_their_own_are_read_one_by_one() -> None:
    index = EchoIndex()
    DatasetReader(index, [plan(["pot", "room"])]).read("Pots", [(1, "a")] * 20, list(range(20)), ["pot"])
    assert len(index.asked) == 20
