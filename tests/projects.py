"""The example projects in `examples/projects/`: definitions, rows to log, questions and the answers they must have.

`examples/projects/README.md` describes the further contents of a module.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from caraway.client import Client
from caraway.datasets import Dataset
from caraway.featuresets import Feature, Featureset

T = TypeVar("T")

FOLDER = Path(__file__).parents[1] / "examples" / "projects"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))

# A webhook, one of its endpoints, and a row.
Logged = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Inputs to query with, at one time for all rows (None: now), and the values that must come back."""

    at: str | datetime | None
    inputs: Mapping[str, Sequence[Any]]
    outputs: Sequence[str]
    expected: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A module of definitions with its data."""

    name: str
    datasets: tuple[Dataset, ...]
    featuresets: tuple[Featureset, ...]
    logs: tuple[tuple[str, str, list[dict[str, Any]]], ...]
    asks: tuple[Ask, ...]
    env: str | None
    secrets: Mapping[str, str]
    tolerance: float
    ordered: bool

    def commit(self, client: Client) -> None:
        """Commit the whole project."""
        for name, value in self.secrets.items():
            client.add_secret(name, value)
        client.commit(self.name, list(self.datasets), list(self.featuresets), env=self.env)

    def rows_last_first(self) -> Iterator[Logged]:
        """Yield all rows, one by one, in reverse order of the logs; in their order if the project's rows need it."""
        rows = [(webhook, endpoint, row) for webhook, endpoint, rows in self.logs for row in rows]
        return iter(rows) if self.ordered else reversed(rows)

    def ask(self, client: Client, ask: Ask) -> pd.DataFrame:
        """Ask a client: at the time of the ask, or now."""
        frame = pd.DataFrame({name: pd.Series(list(values), dtype=object) for name, values in ask.inputs.items()})
        inputs = [self._feature(name) for name in ask.inputs]
        outputs = [self._feature(name) if "." in name else self._featureset(name) for name in ask.outputs]
        if ask.at is None:
            return client.query(inputs, outputs, frame)
        # A name that no feature has: there is a dot in theirs.
        answer = client.query_offline(inputs, outputs, "asked_at", frame.assign(asked_at=ask.at))
        return answer.drop(columns="asked_at")  # type: ignore[no-any-return]

    def _featureset(self, name: str) -> Featureset:
        return next(one for one in self.featuresets if one._name == name)

    def _feature(self, full_name: str) -> Feature:
        featureset, name = full_name.split(".")
        found = self._featureset(featureset).feature(name)
        assert found is not None, f"{self.name}: no feature {full_name}"
        return found


@cache
def load(name: str) -> Project:
    """Import the module of a project."""
    module = _import(name)
    asks: list[dict[str, Any]] = module.ASKS
    return Project(
        name=name,
        datasets=_defined(module, Dataset),
        featuresets=_defined(module, Featureset),
        logs=tuple(module.LOGS),
        asks=tuple(Ask(**ask) for ask in asks),
        env=getattr(module, "ENV", None),
        secrets=getattr(module, "SECRETS", {}),
        tolerance=getattr(module, "TOLERANCE", 0.0),
        ordered=getattr(module, "ORDERED", False),
    )


def _import(name: str) -> ModuleType:
    spec = spec_from_file_location(f"examples.projects.{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # decorators look there for the owner, and for what a function names
    spec.loader.exec_module(module)
    return module


def _defined(module: ModuleType, kind: type[T]) -> tuple[T, ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, kind))


def differences(answer: pd.DataFrame, ask: Ask, tolerance: float = 0.0) -> list[str]:
    """Return the differences between an answer and the wanted values: columns, rows, types, values; null is None."""
    columns = {name: [plain(value) for value in answer[name].tolist()] for name in answer.columns}
    if list(columns) != list(ask.expected):
        return [f"columns {list(columns)}, expected {list(ask.expected)}"]
    wrong = []
    for name, expected in ask.expected.items():
        if len(columns[name]) != len(expected):
            wrong.append(f"{name}: {len(columns[name])} rows, expected {len(expected)}")
        wrong += [
            f"{name} at {ask.at or 'now'}, row {row}: {got!r}, expected {want!r}"
            for row, (got, want) in enumerate(zip(columns[name], expected, strict=False))
            if not _same(got, want, tolerance)
        ]
    return wrong


def _same(got: object, want: object, tolerance: float) -> bool:
    if isinstance(got, float) and isinstance(want, float) and tolerance:
        return abs(got - want) <= tolerance
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(map(_same, got, want, [tolerance] * len(got)))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(_same(got[key], want[key], tolerance) for key in got)
    return type(got) is type(want) and got == want


def plain(value: Any) -> Any:
    """Return a value as Python's own: null is None, a struct a dict, a vector a list."""
    if hasattr(value, "as_json"):
        return plain(value.as_json())
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if value is None or value is pd.NA or value is pd.NaT or value != value:  # noqa: PLR0124 (NaN)
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value
