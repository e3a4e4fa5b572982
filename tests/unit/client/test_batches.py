"""Batches of training sets as arrays and tensors: one type for a column in all batches, and clear refusals."""

import sys

import numpy as np
import pyarrow as pa
import pytest

from caraway.client.batches import number_batches
from caraway.client.training import TrainingSet
from caraway.errors import InvalidInputError, UnavailableError
from caraway.featuresets import featureset

# A vector for each row, of which the second one is null.
VECTORS = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))
TABLE = pa.table(
    {
        "S.n": pa.array([1, 2, None], pa.int64()),
        "S.x": pa.array([0.5, None, -0.0]),
        "S.flag": pa.array([True, False, None]),
        "S.name": pa.array(["a", None, "c"]),
        "S.vector": VECTORS,
        "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
        "_history": pa.array([None, None, None], pa.string()),
        "_error": pa.array([None, None, None], pa.string()),
    }
)


@featureset
class S:
    n: int
    x: float


def training_set(*parts: pa.Table) -> TrainingSet:
    rows = sum(map(len, parts))
    return TrainingSet({"request_id": "r", "rows_done": rows, "rows_failed": 0, "parts": len(parts)}, parts.__getitem__)


def test_a_column_has_one_type_in_all_batches() -> None:
    first, second = training_set(TABLE).arrays(rows=2)
    assert {name: array.dtype for name, array in first.items()} == {name: array.dtype for name, array in second.items()}
    assert first["S.n"].tolist() == [1.0, 2.0]
    assert np.isnan(second["S.n"]).tolist() == [True]
    assert first["S.flag"].tolist() == [1.0, 0.0]
    assert np.isnan(second["S.flag"]).tolist() == [True]
    assert first["S.name"].tolist() == ["a", None]
    assert first["at"].dtype == np.dtype("datetime64[us]")


def test_floats_keep_their_bits() -> None:
    (batch,) = training_set(TABLE).arrays(["S.x"])
    assert np.signbit(batch["S.x"][2])
    assert np.isnan(batch["S.x"][1])


def test_an_embedding_is_a_row_of_a_matrix() -> None:
    (batch,) = training_set(TABLE).arrays(["S.vector"])
    np.testing.assert_array_equal(batch["S.vector"], [[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]])
    # A batch that begins amid a part has its own vectors.
    *_, last = training_set(TABLE).arrays(["S.vector"], rows=2)
    assert last["S.vector"].tolist() == [[3.0, 4.0]]


def test_arrays_may_be_written_to() -> None:
    for array in next(training_set(TABLE).arrays()).values():
        assert array.flags.writeable


def test_columns_are_chosen_by_features_and_names_in_their_order() -> None:
    (batch,) = training_set(TABLE).arrays([S.x, "at", S.n])
    assert list(batch) == ["S.x", "at", "S.n"]
    with pytest.raises(InvalidInputError, match=r"no column S\.y; the columns are S\.n, S\.x.*, at$"):
        next(training_set(TABLE).arrays(["S.y"]))


def test_arrays_are_read_part_by_part() -> None:
    fetched: list[int] = []

    def read(number: int) -> pa.Table:
        fetched.append(number)
        return TABLE

    batches = TrainingSet({"request_id": "r", "rows_done": 6, "rows_failed": 0, "parts": 2}, read).arrays(rows=3)
    next(batches)
    assert fetched == [0]
    assert len(list(batches)) == 1


def test_tensors_are_made_of_the_columns_with_numbers() -> None:
    first, second = number_batches(training_set(TABLE).batches(2), None)
    assert list(first) == ["S.n", "S.x", "S.flag", "S.vector"]
    assert {array.dtype for batch in (first, second) for array in batch.values()} == {np.dtype(np.float64)}
    assert [list(batch) for batch in number_batches(training_set(TABLE).batches(), [S.x])] == [["S.x"]]


def test_a_text_can_t_become_a_tensor() -> None:
    with pytest.raises(InvalidInputError, match=r"S\.name is of type string.*`columns`"):
        next(number_batches(training_set(TABLE).batches(), [S.n, "S.name"]))


def test_without_torch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules makes Python refuse the import, also where PyTorch is installed.
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnavailableError, match=r"to_torch needs torch .*pip install torch"):
        training_set(TABLE).to_torch()
