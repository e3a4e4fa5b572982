"""Conversion of Python annotations to data types and back."""

import inspect
import sys
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Dict, List, Optional, Union, get_args  # noqa: UP035 (what users write)

import numpy as np
import pandas as pd

from caraway.dtypes import types as t
from caraway.dtypes.values import CONVERSIONS
from caraway.errors import DefinitionError, DefinitionTypeError

# The attribute of a class made by `@struct` that holds its type.
STRUCT_ATTRIBUTE = "__caraway_struct__"

# The class that `@struct` made for each struct type, so that values of the type can be returned as its instances.
_struct_classes: dict[t.StructType, type] = {}


def dtype_of(annotation: Any) -> t.DataType:
    """Return the data type of an annotation.

    Raises:
        DefinitionTypeError: The annotation is no type that a column may have.
        DefinitionError: The annotation has a form that isn't supported: a union of two types, keys that aren't str.
    """
    if isinstance(annotation, t.Annotation):
        return typing.cast("t.DataType", annotation)
    if isinstance(annotation, pd.api.extensions.ExtensionDtype):
        annotation = type(annotation)
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(annotation, origin, typing.get_args(annotation))
    if isinstance(annotation, type):
        if annotation in _plain_types():
            return _plain_types()[annotation]
        struct = annotation.__dict__.get(STRUCT_ATTRIBUTE)
        if isinstance(struct, t.StructType):
            return struct
    raise DefinitionTypeError(f"{spell(annotation)} is not a type that Caraway knows. Types: {valid_types()}")


def annotation_of(dtype: t.DataType, *, pandas: bool = False) -> Any:
    """Return the annotation that a user would write for a data type; `pandas` returns dtype classes for primitives."""
    match dtype:
        case t.ListType(of):
            # The annotation is typing's List, which most users write, and which isn't equal to list[int].
            return List[annotation_of(of)]  # type: ignore[misc]  # noqa: UP006
        case t.MapType(of):
            return Dict[str, annotation_of(of)]  # type: ignore[misc]  # noqa: UP006
        case t.OptionalType(of):
            return Optional[annotation_of(of, pandas=pandas)]  # noqa: UP045 (built at run time)
        case t.StructType():
            return struct_class(dtype) or dtype
        case _:
            row = CONVERSIONS[type(dtype)]
            python = row.python[0] if row.python else dtype
            return row.pandas[0] if pandas and row.pandas else python


def valid_types() -> str:
    """Return the types that users may write, for messages."""
    return ", ".join(CONVERSIONS[cls].written for cls in get_args(t.DataType))


@cache
def _plain_types() -> dict[type, t.DataType]:
    """Return the types without parameters by the classes that stand for them in annotations."""
    return {written: cls() for cls, row in CONVERSIONS.items() for written in (*row.python, *row.pandas)}


def register_struct(dtype: t.StructType, cls: type) -> None:
    """Remember the class of a struct type; of several definitions of equal types the latest counts."""
    _struct_classes[dtype] = cls


def struct_class(dtype: t.StructType) -> type | None:
    """Return the class that `@struct` made for a type, if this process defined one."""
    return _struct_classes.get(dtype)


def own_annotations(cls: type, local_names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of the class body itself, those that are strings evaluated as far as they can be.

    A string may refer to the names of the class's module, and to `local_names`: those where the class is defined.
    """
    module = sys.modules.get(cls.__module__)
    namespace = {**({} if module is None else vars(module)), **local_names}
    return {name: _evaluated(value, namespace) for name, value in inspect.get_annotations(cls).items()}


def _evaluated(annotation: Any, namespace: dict[str, Any]) -> Any:
    """Evaluate an annotation that is a string; one that can't be evaluated is left for `dtype_of` to refuse."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, namespace)  # noqa: S307 (the user's own annotation, as `typing` does it)
    except Exception:  # noqa: BLE001 (a name that isn't defined yet, or any other code)
        return annotation


def spell(annotation: Any) -> str:
    """Return the spelling of an annotation for a message."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _annotated(base: Any, extras: tuple[Any, ...]) -> t.DataType:
    """Return the type in `Annotated[T, ...]`, which is a restriction, `Decimal[n]` or `Embedding[n]`."""
    given = [typing.cast("t.DataType", extra) for extra in extras if isinstance(extra, t.Annotation)]
    if not given:
        # An `Annotated[T, ...]` without a type of Caraway's is meant for other programs, and is read as T alone.
        return dtype_of(base)
    if len(given) > 1:
        names = " and ".join(map(t.type_name, given))
        raise DefinitionError(f"Annotated[{spell(base)}, ...]: a value has one type, not {names}")
    fits = _python_types(given[0])
    if base not in fits:
        name = t.type_name(given[0])
        raise DefinitionTypeError(
            f"Annotated[{spell(base)}, {name}]: {name} goes with {spell(fits[0])}, not with {spell(base)}"
        )
    return given[0]


def _python_types(dtype: t.DataType) -> tuple[Any, ...]:
    """Return the Python types that may come before a data type in `Annotated`."""
    match dtype:
        case t.BetweenType(of) | t.OneOfType(of):
            return (annotation_of(of),)
        case t.RegexType():
            return (str,)
        case t.DecimalType():
            return (Decimal,)
        case t.EmbeddingType():
            return (list[float], List[float])  # noqa: UP006 (what users write)
        case _:
            return (annotation_of(dtype),)


def _generic(annotation: Any, origin: Any, args: tuple[Any, ...]) -> t.DataType:
    if origin is Union or origin is types.UnionType:
        inner = [arg for arg in args if arg is not type(None)]
        if len(inner) > 1 and all(STRUCT_ATTRIBUTE in getattr(arg, "__dict__", {}) for arg in inner):
            raise DefinitionTypeError(f"a value is of one struct, not of {' or '.join(map(spell, inner))}")
        if len(inner) != 1 or len(inner) == len(args):
            raise DefinitionError(f"{spell(annotation)}: a union is only possible with None, as in Optional[int]")
        return t.optional(dtype_of(inner[0]))
    if origin in (list, dict) and not args:
        # A bare typing.List or typing.Dict has the origin `list` or `dict`, as List[int] has, but no arguments.
        raise DefinitionTypeError(f"{spell(annotation)} has no type of its elements. Types: {valid_types()}")
    if origin is Annotated:
        return _annotated(args[0], args[1:])
    if origin is list:
        return t.ListType(dtype_of(args[0]))
    if origin is dict:
        if args[0] not in (str, np.str_, pd.StringDtype):
            raise DefinitionError(f"{spell(annotation)}: the keys of a Dict are str, not {spell(args[0])}")
        return t.MapType(dtype_of(args[1]))
    raise DefinitionTypeError(f"{spell(annotation)} is not a type that Caraway knows. Types: {valid_types()}")
