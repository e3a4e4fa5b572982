"""Batches of a training set as NumPy arrays and as tensors of PyTorch, for loops that train."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from caraway.client.extras import imported
from caraway.errors import InvalidInputError
from caraway.featuresets.features import Feature

Array = npt.NDArray[Any]
Columns = Sequence[Feature | str]


def array_batches(batches: Iterable[pa.RecordBatch], columns: Columns | None) -> Iterator[dict[str, Array]]:
    """Yield each batch as one array a column; see `TrainingSet.arrays`."""
    wanted = _names(columns)
    for batch in batches:
        names = batch.schema.names if wanted is None else wanted
        _require(batch.schema, names, "arrays")
        yield {name: _array(batch.column(name)) for name in names}


def number_batches(batches: Iterable[pa.RecordBatch], columns: Columns | None) -> Iterator[dict[str, Array]]:
    """Yield each batch as one array of float64 a column.

    `columns` are by default those that have numbers, booleans or embeddings. Raises `InvalidInputError` if one of them
    isn't there, or has something else.
    """
    wanted = _names(columns)
    for batch in batches:
        names = [field.name for field in batch.schema if _is_numeric(field.type)] if wanted is None else wanted
        _require(batch.schema, names, "to_torch")
        for name in names:
            kind = batch.schema.field(name).type
            if not _is_numeric(kind):
                raise InvalidInputError(
                    f"to_torch: column {name} is of type {kind}, and a tensor has numbers only; leave it out by "
                    "`columns`, or encode it in the batches of `arrays`"
                )
        yield {name: _array(batch.column(name)) for name in names}


def torch_dataset(batches: Callable[[], Iterable[pa.RecordBatch]], columns: Columns | None) -> Any:
    """Return an `IterableDataset` that takes new batches for each pass over it; see `TrainingSet.to_torch`."""
    torch = imported("torch", wanted_by="to_torch", install="pip install torch")
    data = imported("torch.utils.data", wanted_by="to_torch", install="pip install torch")

    def tensors(_: object) -> Iterator[dict[str, Any]]:
        if data.get_worker_info() is not None:
            raise InvalidInputError(
                "to_torch: each worker of a DataLoader would read all rows; give the DataLoader num_workers=0"
            )
        for batch in number_batches(batches(), columns):
            yield {name: torch.from_numpy(array) for name, array in batch.items()}

    # The class is made here, since its base exists only where PyTorch is installed.
    return type("TrainingBatches", (data.IterableDataset,), {"__iter__": tensors})()


def _names(columns: Columns | None) -> list[str] | None:
    return None if columns is None else [item.fqn() if isinstance(item, Feature) else item for item in columns]


def _require(schema: pa.Schema, names: Sequence[str], where: str) -> None:
    if missing := [name for name in names if name not in schema.names]:
        raise InvalidInputError(
            f"{where}: there is no column {', '.join(missing)}; the columns are {', '.join(schema.names)}"
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _is_numeric(kind: pa.DataType) -> bool:
    return _is_number(kind.value_type if pa.types.is_fixed_size_list(kind) else kind)


def _array(column: pa.Array) -> Array:
    """Return a column as an array of the caller's own: PyTorch wants memory that it may write to."""
    if _is_number(column.type):
        return np.array(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_fixed_size_list(column.type) and _is_number(column.type.value_type):
        vectors = np.full((len(column), column.type.list_size), np.nan)
        # Flattening leaves out null lists, so only the rows that have a list are filled; the others stay NaN.
        vectors[column.is_valid().to_numpy(zero_copy_only=False)] = _array(column.flatten()).reshape(
            -1, column.type.list_size
        )
        return vectors
    return np.array(column.to_numpy(zero_copy_only=False))
