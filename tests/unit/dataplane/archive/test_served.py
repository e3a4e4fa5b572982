"""The table of served features: readable records only, no rows of erased keys, and none that were found before."""

from pathlib import Path

import pyarrow as pa
import pytest

from caraway.dataplane.archive.served import SERVED_PLAN, ServedEncoder
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.served_table import COMMIT, INPUTS, OUTPUTS, POSITION, SCHEMA
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.erased_keys import ErasedKeys
from tests.unit.dataplane.archive.test_served_rows import commits, erased_rows, record


def test_rows_of_erased_keys_and_unreadable_records_are_left_out() -> None:
    messages = [
        (None, record({"Tap.pot": [1, 3, 2]}, {"A.b": [1, 3, 2]}), 0, 7),
        (None, b"no record", 0, 8),
        (None, record({"Tap.pot": [3]}, {"A.b": [3]}), 0, 9),
    ]
    assert ServedEncoder(erased_rows(3)).table(messages)["inputs"].to_pylist() == ['{"Tap.pot":1}', '{"Tap.pot":2}']
    whole = ServedEncoder(ErasedRows(ErasedKeys(dict), commits)).table(messages)
    assert whole["_offset"].to_pylist() == [7, 7, 7, 9]
    assert SERVED_PLAN.schema.keys == ()


def test_rows_are_named_before_they_are_removed(tmp_path: Path) -> None:
    plain = ServedEncoder(ErasedRows(ErasedKeys(dict), commits))
    table = ArchiveTable.opened(str(tmp_path), "served", SCHEMA, dataset="served features")
    for offset, pots in enumerate(([1, 3, 2], [5], [3])):
        message = (None, record({"Tap.pot": pots}, {"A.b": pots}), 0, offset)
        table.append(plain.table([message]), {0: offset + 1})
    rows = erased_rows(3)

    def hidden(batch: pa.RecordBatch) -> list[bool]:
        return [rows.hides(*row) for row in zip(*(batch[name].to_pylist() for name in wanted), strict=True)]

    wanted = (COMMIT, INPUTS, OUTPUTS)
    named: list[dict[str, list[int]]] = []

    def refuse(found: pa.Table) -> None:
        named.append(found.sort_by("_offset").to_pydict())
        raise LookupError

    with pytest.raises(LookupError):
        table.remove_rows(POSITION, wanted, hidden, refuse)
    assert named == [{"_partition": [0, 0], "_offset": [0, 2], "row": [1, 0]}]
    # Nothing was removed, since what is kept elsewhere of these rows may still be there.
    assert table.read(["row"]).num_rows == 5
    assert table.remove_rows(POSITION, wanted, hidden) == 2
    assert sorted(table.read(["inputs"])["inputs"].to_pylist()) == ['{"Tap.pot":1}', '{"Tap.pot":2}', '{"Tap.pot":5}']
    assert table.positions([0]) == {0: 3}
    assert table.remove_rows(POSITION, wanted, hidden) == 0
