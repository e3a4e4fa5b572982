"""The arguments of queries and lookups: features, datasets and frames, in any of their forms."""

from collections.abc import Sequence
from typing import TypeVar

import pandas as pd

from caraway.datasets.dataset import Dataset
from caraway.dtypes.types import DataType
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError, meant
from caraway.featuresets.features import Feature, is_valid_feature
from caraway.featuresets.featureset import Featureset
from caraway.graph.merging import without_deleted
from caraway.graph.specs import Graph

# Features by full name, each with its type; None for a feature given by name only.
Named = dict[str, DataType | None]


def input_features(inputs: Sequence[Feature | str], where: str) -> Named:
    """Return the full names of input features."""
    return dict(_input(item, where) for item in _sequence(inputs, where, "inputs"))


def _input(item: object, where: str) -> tuple[str, DataType | None]:
    if isinstance(item, Feature):
        return item.fqn(), item.data_type
    if isinstance(item, str) and is_valid_feature(item):
        return item, None
    if isinstance(item, (Featureset, str)):
        raise InvalidInputError(
            f"{where}: input {item!r} is not a feature; name features as Featureset.feature, one by one"
        )
    raise InvalidInputError(f"{where}: input {item!r} is a {type(item).__name__}, not a feature")


def output_features(outputs: Sequence[Feature | Featureset | str], where: str) -> Named:
    """Return the wanted names, in order; a featureset's name stays as it is, a featureset object is expanded."""
    wanted: Named = {}
    for item in _sequence(outputs, where, "outputs"):
        match item:
            case Feature():
                wanted[item.fqn()] = item.data_type
            case Featureset():
                wanted.update({feature.fqn(): feature.data_type for feature in item.features})
            case str() if item and item.count(".") <= 1:
                wanted.setdefault(item, None)
            case _:
                raise InvalidInputError(f"{where}: output {item!r} is neither a feature nor a featureset")
    return wanted


def _sequence(items: object, where: str, what: str) -> Sequence[object]:
    if isinstance(items, (list, tuple)):
        return items
    raise InvalidInputError(f"{where}: {what} is a list of features, not {items!r}")


def require_columns(frame: object, names: Sequence[str], where: str) -> pd.DataFrame:
    """Check that a frame, or a list of dicts, one a row, has a column for each name, and return it as a frame."""
    if isinstance(frame, list) and all(isinstance(row, dict) for row in frame):
        # Columns of objects keep an integer exact beside a null, while pandas would make both floats.
        frame = pd.DataFrame(frame, columns=None if frame else list(names), dtype=object)
    if not isinstance(frame, pd.DataFrame):
        raise InvalidInputError(
            f"{where}: input_dataframe is a {type(frame).__name__}; give a DataFrame, or a list of dicts, one a row"
        )
    if missing := [name for name in names if name not in frame.columns]:
        raise InvalidInputError(
            f"{where}: the frame has no column {', '.join(missing)}{meant(missing[0], map(str, frame.columns))}; "
            f"columns: {', '.join(map(str, frame.columns))}"
        )
    return frame


def dataset_name(dataset: object, where: str) -> str:
    """Return the name of a dataset, given as an object or by name."""
    match dataset:
        case str():
            return dataset
        case Dataset():
            return dataset.fqn()
        case _:
            raise DefinitionTypeError(f"{where}: {dataset!r} is neither a dataset nor the name of one")


def key_frame(keys: object, where: str) -> pd.DataFrame:
    """Return keys as a frame; a list of objects, one a row, is accepted, too."""
    if isinstance(keys, list) and keys and all(isinstance(row, dict) for row in keys):
        keys = pd.DataFrame(keys)
    if not isinstance(keys, pd.DataFrame):
        raise InvalidInputError(f"{where}: keys is a {type(keys).__name__}; give a DataFrame, a column for each key")
    return keys


def erase_rows(dataset: Dataset | None, keys: object, where: str) -> pd.DataFrame:
    """Return the keys of an erasure as a frame, checked against the definition if it is given."""
    frame = key_frame(keys, where)
    if dataset is not None:
        check_erase_keys(frame, dataset.erase_key_fields, where)
    return frame


def check_erase_keys(frame: pd.DataFrame, erase_keys: Sequence[str], where: str) -> None:
    """Check that a frame has exactly a dataset's erase keys as columns, with a value in each row."""
    spelled = ", ".join(erase_keys) or "none; mark one with field(key=True, erase_key=True)"
    if wrong := [str(name) for name in frame.columns if name not in erase_keys]:
        raise InvalidInputError(
            f"{where}: {', '.join(wrong)} is no erase key{meant(wrong[0], erase_keys)}; erase keys: {spelled}"
        )
    if missing := [name for name in erase_keys if name not in frame.columns]:
        raise InvalidInputError(f"{where}: erase key {', '.join(missing)} is missing; erase keys: {spelled}")
    if not erase_keys:
        raise InvalidInputError(f"{where}: erase keys: {spelled}")
    for name in erase_keys:
        if frame[name].isna().any():
            raise InvalidInputError(f"{where}: erase key {name} is null in some row; each row needs a value")


def gather(datasets: object, featuresets: object) -> Graph:
    """Build a graph of definitions, including those that are marked as deleted."""
    given = []
    for kind, items, expected in (("datasets", datasets, Dataset), ("featuresets", featuresets, Featureset)):
        if not isinstance(items, (list, tuple)):
            raise DefinitionTypeError(f"commit: {kind} is a list, not {items!r}")
        for item in items:
            if not isinstance(item, expected):
                raise DefinitionTypeError(f"commit: {kind} holds {item!r}, which is a {type(item).__name__}")
        given.append(tuple(item.to_spec() for item in items))
    return Graph(datasets=given[0], featuresets=given[1])


def build_graph(datasets: Sequence[Dataset], featuresets: Sequence[Featureset]) -> Graph:
    """Build a graph of definitions, without those that are marked as deleted; see `gather`."""
    return without_deleted(gather(datasets, featuresets))


def require_message(message: object) -> None:
    """Check the message of a commit."""
    if not isinstance(message, str):
        raise DefinitionTypeError(f"commit: the message is a str, not {message!r}; it comes before the datasets")


def name_list(names: str | Sequence[str] | None) -> str | None:
    """Return names joined with commas; a single name is returned as it is."""
    return names if names is None or isinstance(names, str) else ",".join(names)


class Queue:
    """The datasets and featuresets that were added since the last commit."""

    def __init__(self) -> None:
        self.datasets: list[Dataset] = []
        self.featuresets: list[Featureset] = []

    def add(self, entity: object) -> None:
        """Append a dataset or featureset.

        Raises:
            DefinitionError: An entity of this name is queued already.
            NotImplementedError: `entity` is neither a dataset nor a featureset.
        """
        match entity:
            case Dataset():
                _append(self.datasets, entity, "dataset")
            case Featureset():
                _append(self.featuresets, entity, "featureset")
            case _:
                raise NotImplementedError(
                    f"add: datasets and featuresets can be added, not {entity!r}, which is a {type(entity).__name__}"
                )

    def clear(self) -> None:
        """Remove all entities."""
        self.datasets.clear()
        self.featuresets.clear()


Entity = TypeVar("Entity", Dataset, Featureset)


def _append(queue: list[Entity], entity: Entity, kind: str) -> None:
    if entity.fqn() in [other.fqn() for other in queue]:
        raise DefinitionError(f"add: {kind} {entity.fqn()} was added already")
    queue.append(entity)
