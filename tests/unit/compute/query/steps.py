"""Steps of users' functions that tests define."""

from collections.abc import Mapping
from typing import Any

import cloudpickle

from caraway.compute.query.model import PythonStep, TypedColumn
from caraway.dtypes.types import DataType


def by_value(function: Any) -> bytes:
    """Pickle a function by value, for a process that can't import the tests."""
    function.__module__ = "__main__"
    pickled: bytes = cloudpickle.dumps(function)
    return pickled


def step_of(
    pickled: bytes, inputs: Mapping[str, DataType], outputs: Mapping[str, DataType], *datasets: str, name: str = "test"
) -> PythonStep:
    """Return the step of an extractor of the featureset `A`, which keeps all its outputs."""
    return PythonStep(
        featureset="A",
        extractor=name,
        inputs=tuple(TypedColumn(name=name, dtype=dtype) for name, dtype in inputs.items()),
        outputs=tuple(outputs.items()),
        kept=tuple(outputs),
        datasets=datasets,
        pickled=pickled,
    )
