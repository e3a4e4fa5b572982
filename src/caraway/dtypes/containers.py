"""Conversions of lists, maps, embeddings and optionals."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from caraway.dtypes import values as v
from caraway.dtypes.numbers import json_float
from caraway.dtypes.types import FLOAT, EmbeddingType, ListType, MapType, OptionalType, type_name
from caraway.errors import InvalidInputError, quoted, shortened


def _sequence(expected: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return list(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    raise v.mismatch(expected, value)


def _list(dtype: ListType, element: v.Convert) -> v.Convert:
    expected = type_name(dtype)

    def to_list(value: Any) -> list[Any]:
        result = []
        for position, item in enumerate(_sequence(expected, value)):
            try:
                result.append(element(item))
            except InvalidInputError as error:
                raise InvalidInputError(f"{expected}, element {position}: {error}") from None
        return result

    return to_list


def _embedding(dim: int, element: v.Convert) -> v.Convert:
    expected = f"Embedding[{dim}]"

    def to_embedding(value: Any) -> list[float]:
        items = _sequence(expected, value)
        if len(items) != dim:
            raise InvalidInputError(f"expected {expected}, found {len(items)} elements")
        return [element(item) for item in items]

    return to_embedding


def _map(dtype: MapType, element: v.Convert) -> v.Convert:
    expected = type_name(dtype)

    def to_map(value: Any) -> dict[str, Any]:
        try:
            items = dict(value) if isinstance(value, Mapping) else dict(_sequence(expected, value))
        except (TypeError, ValueError):
            raise v.mismatch(expected, value) from None
        if wrong := [key for key in items if not isinstance(key, str)]:
            raise InvalidInputError(f"expected {expected}, found key {quoted(wrong[0])}")
        result = {}
        for key in sorted(items):
            try:
                result[key] = element(items[key])
            except InvalidInputError as error:
                raise InvalidInputError(f'{expected}, key "{shortened(key)}": {error}') from None
        return result

    return to_map


def _cast_optional(inner: v.Convert) -> v.Convert:
    return lambda value: None if v.is_null(value) else inner(value)


def _nullable(inner: v.Convert) -> v.Convert:
    return inner if inner is v.same else lambda value: None if value is None else inner(value)


def _each(inner: v.Convert, null: object = None) -> v.Convert:
    return lambda value: [null if item is None else inner(item) for item in value]


def _each_value(inner: v.Convert, null: object = None) -> v.Convert:
    return lambda value: {key: null if item is None else inner(item) for key, item in value.items()}


def _map_from_json(inner: v.Convert) -> v.Convert:
    return lambda value: {key: inner(item) for key, item in sorted(_entries(value))}


def _map_to_arrow(inner: v.Convert) -> v.Convert:
    return lambda value: [(key, None if item is None else inner(item)) for key, item in value.items()]


def _entries(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else [(key, item) for key, item in value]


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, (list, np.ndarray)) and all(fits(item) for item in value)


def _is_map(value: Any, dtype: MapType, widen: bool) -> bool:
    if not isinstance(value, Mapping):
        is_pairs = isinstance(value, (list, tuple)) and all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value
        )
        if not is_pairs:
            return False
    return all(
        isinstance(key, str) and v.conforms(item, dtype.of, widen=widen)
        for key, item in dict[Any, Any](_entries(value)).items()
    )


def at(place: str, check: v.Convert, value: Any) -> Any:
    """Return the result of a check or conversion of a value inside of another; an error of it begins with `place`."""
    try:
        return check(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}: {error}") from None


def _verify_list(dtype: ListType) -> v.Check:
    place, check = f"{type_name(dtype)}, element", v.verify(dtype.of)

    def check_all(value: list[Any]) -> None:
        for position, item in enumerate(value):
            at(f"{place} {position}", check, item)

    return check_all


def _verify_map(dtype: MapType) -> v.Check:
    place, check = f"{type_name(dtype)}, key", v.verify(dtype.of)

    def check_all(value: dict[str, Any]) -> None:
        for key, item in value.items():
            at(f'{place} "{key}"', check, item)

    return check_all


def _verify_length(dtype: EmbeddingType) -> v.Check:
    def check(value: list[float]) -> None:
        if len(value) != dtype.dim:
            raise InvalidInputError(f"expected {type_name(dtype)}, found {len(value)} elements")

    return check


v.CONVERSIONS[ListType] = v.Conversions(
    written="List[T]",
    cast=lambda dtype, manner: _list(dtype, v.cast(dtype.of, manner)),
    conforms=lambda value, dtype, widen: _is_list(value, lambda item: v.conforms(item, dtype.of, widen=widen)),
    arrow=lambda dtype: pa.list_(v.arrow_type(dtype.of)),
    decode=lambda dtype: _each(v.decode(dtype.of), pd.NA),
    to_json=lambda dtype: _each(v.to_json(dtype.of)),
    from_json=lambda dtype: _each(v.from_json(dtype.of)),
    has_form=lambda value, dtype: isinstance(value, list) and all(v.has_form(item, dtype.of) for item in value),
    inside=_verify_list,
    to_arrow=lambda dtype: _each(v.to_arrow(dtype.of)),
)
v.CONVERSIONS[MapType] = v.Conversions(
    written="Dict[str, T]",
    cast=lambda dtype, manner: _map(dtype, v.cast(dtype.of, manner)),
    conforms=_is_map,
    arrow=lambda dtype: pa.map_(pa.string(), v.arrow_type(dtype.of)),
    decode=lambda dtype: _each_value(v.decode(dtype.of), pd.NA),
    to_json=lambda dtype: _each_value(v.to_json(dtype.of)),
    from_json=lambda dtype: _map_from_json(v.from_json(dtype.of)),
    has_form=lambda value, dtype: (
        isinstance(value, dict) and all(v.has_form(item, dtype.of) for item in value.values())
    ),
    inside=_verify_map,
    to_arrow=lambda dtype: _map_to_arrow(v.to_arrow(dtype.of)),
)
v.CONVERSIONS[EmbeddingType] = v.Conversions(
    written="Embedding[n]",
    cast=lambda dtype, manner: _embedding(dtype.dim, v.cast(FLOAT, manner)),
    conforms=lambda value, dtype, _: (
        isinstance(value, (list, np.ndarray)) and len(value) == dtype.dim and v.casts(value, dtype)
    ),
    arrow=lambda dtype: pa.list_(pa.float64(), dtype.dim),
    decode=lambda _: list,
    to_json=lambda _: _each(json_float),
    has_form=lambda value, _: isinstance(value, list) and all(type(item) is float for item in value),
    inside=_verify_length,
)
v.CONVERSIONS[OptionalType] = v.Conversions(
    written="Optional[T]",
    cast=lambda dtype, manner: _cast_optional(v.cast(dtype.of, manner)),
    conforms=lambda value, dtype, widen: v.is_null(value) or v.conforms(value, dtype.of, widen=widen),
    arrow=lambda dtype: v.arrow_type(dtype.of),
    decode=lambda dtype: _nullable(v.decode(dtype.of)),
    to_json=lambda dtype: _nullable(v.to_json(dtype.of)),
    from_json=lambda dtype: _nullable(v.from_json(dtype.of)),
    has_form=lambda value, dtype: value is None or v.has_form(value, dtype.of),
    to_arrow=lambda dtype: v.to_arrow(dtype.of),
)
