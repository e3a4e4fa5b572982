"""Records with named fields: the `@struct` decorator, and the predefined `Window`."""

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import pandas as pd
import pyarrow as pa

from caraway.dtypes import values as v
from caraway.dtypes.annotations import STRUCT_ATTRIBUTE, dtype_of, own_annotations, register_struct, spell, struct_class
from caraway.dtypes.containers import at
from caraway.dtypes.types import DataType, StructType
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError

# A function that makes the expression of `S.expr(...)` or `S.zip(...)` for a struct class S. `caraway.expr` registers
# such functions here, since it imports `caraway.dtypes`, which therefore can't import `caraway.expr`.
Builder = Callable[[type, Mapping[str, object]], Any]
_builders: dict[str, Builder] = {}

META_ATTRIBUTE = "__caraway_meta__"
NO_META = "@meta goes on datasets, pipelines, featuresets and extractors, not on structs"

T = TypeVar("T")


class Struct:
    """A base that struct classes may have, by which checkers and editors know the methods that `@struct` adds."""

    if TYPE_CHECKING:

        @classmethod
        def expr(cls, /, **fields: object) -> Any:
            """Return an expression for a struct in each row; all fields must be given."""

        @classmethod
        def zip(cls, /, **fields: object) -> Any:
            """Return an expression for a list of structs in each row, from a list for each field."""

        def as_json(self) -> dict[str, Any]:
            """Return the fields as a dict, nested structs likewise."""


@dataclass_transform(eq_default=True)
def struct(cls: type[T]) -> type[T]:
    """Convert an annotated class to a record type.

    Raises:
        DefinitionTypeError: The class defines a function, or a field has a type that a struct can't hold.
        DefinitionError: A field has a default, or the class carries `@meta`.
    """
    name = cls.__name__
    if META_ATTRIBUTE in cls.__dict__:
        raise DefinitionError(f"struct {name}: {NO_META}")
    annotations = own_annotations(cls, sys._getframe(1).f_locals)  # noqa: SLF001 (local names in string annotations)
    for attribute, value in cls.__dict__.items():
        if attribute in annotations:
            raise DefinitionError(f"struct {name}: field {attribute} has a default; the fields of a struct have none")
        if inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod)):
            raise DefinitionTypeError(f"struct {name}: function {attribute} is not allowed; a struct has fields only")
    fields = tuple((field, _field_type(name, field, annotation)) for field, annotation in annotations.items())
    made = dataclasses.dataclass(eq=False)(cls)
    dtype = StructType(name, fields)
    setattr(made, STRUCT_ATTRIBUTE, dtype)
    made.__eq__ = _equal  # type: ignore[method-assign]
    made.__hash__ = object.__hash__  # type: ignore[method-assign]
    made.as_json = _as_json  # type: ignore[attr-defined]
    made.expr = classmethod(_expr)  # type: ignore[attr-defined]
    made.zip = classmethod(_zip)  # type: ignore[attr-defined]
    register_struct(dtype, made)
    return made


def take_as_struct(annotation: object) -> None:
    """Convert plain annotated classes in the annotation of a field or feature to structs, as `@struct` would.

    A class is plain if it has annotations, no base and no function of its own. `dtype_of` refuses any other.
    """
    for part in typing.get_args(annotation):
        take_as_struct(part)
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return
    body = vars(annotation)
    fields = body.get("__annotations__")
    if STRUCT_ATTRIBUTE in body or annotation.__bases__ != (object,) or not fields:
        return
    if any(inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod)) for value in body.values()):
        return
    for field in own_annotations(annotation, {}).values():
        take_as_struct(field)
    struct(annotation)


def register_builders(**builders: Builder) -> None:
    """Register the functions behind `S.expr` and `S.zip` of struct classes; they get the class and the fields."""
    _builders.update(builders)


def _expr(cls: type, /, **fields: object) -> Any:
    return _builders["expr"](cls, fields)


def _zip(cls: type, /, **fields: object) -> Any:
    return _builders["zip"](cls, fields)


def _field_type(struct_name: str, field: str, annotation: Any) -> Any:
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        # Only the type in `Annotated` is checked, because its later arguments may be plain text.
        args = args[:1]
    if any(isinstance(part, (str, typing.ForwardRef)) for part in (annotation, *args)):
        raise DefinitionTypeError(
            f"struct {struct_name}: field {field} refers to {spell(annotation)}, which isn't defined"
        )
    try:
        return dtype_of(annotation)
    except DefinitionTypeError as error:
        raise DefinitionTypeError(f"struct {struct_name}: field {field}: {error}") from None
    except DefinitionError as error:
        raise DefinitionError(f"struct {struct_name}: field {field}: {error}") from None


def _equal(self: Any, other: object) -> bool:
    """Return whether two structs have equal fields; their classes may differ."""
    return all(
        hasattr(other, f.name) and _nulls_as_none(getattr(self, f.name)) == _nulls_as_none(getattr(other, f.name))
        for f in dataclasses.fields(self)
    ) and hasattr(type(other), STRUCT_ATTRIBUTE)


def _nulls_as_none(value: object) -> object:
    """Return a value with None for each pd.NA in lists and maps: pd.NA equals nothing, not even itself."""
    if isinstance(value, list):
        return [_nulls_as_none(item) for item in value]
    if isinstance(value, dict):
        return {key: _nulls_as_none(item) for key, item in value.items()}
    return None if value is pd.NA else value


def _as_json(self: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


def _plain(value: Any) -> Any:
    if hasattr(type(value), STRUCT_ATTRIBUTE):
        return _as_json(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if value is pd.NA else value


def _cast(dtype: StructType, manner: v.Manner) -> v.Convert:
    casts = [(name, v.cast(field, manner)) for name, field in dtype.fields]

    def to_struct(value: Any) -> list[Any]:
        if isinstance(value, Mapping):
            get = value.get
        elif hasattr(type(value), STRUCT_ATTRIBUTE):
            get = vars(value).get
        else:
            raise v.mismatch(f"struct {dtype.name}", value)
        result = []
        for name, field in casts:
            try:
                result.append(field(get(name)))
            except InvalidInputError as error:
                raise InvalidInputError(f"struct {dtype.name}, field {name}: {error}") from None
        return result

    return to_struct


def _decoded(dtype: StructType) -> v.Convert:
    readers = [(name, v.decode(field)) for name, field in dtype.fields]

    def to_struct(value: list[Any]) -> Any:
        fields = {name: None if item is None else read(item) for (name, read), item in zip(readers, value, strict=True)}
        cls = struct_class(dtype)
        return fields if cls is None else cls(**fields)

    return to_struct


def _read_json(dtype: StructType) -> v.Convert:
    readers = [(name, v.from_json(field)) for name, field in dtype.fields]
    return lambda value: [read(value.get(name)) for name, read in readers]


def _shown(dtype: StructType, compiled: Callable[[DataType], v.Convert]) -> v.Convert:
    """Compile the conversion of a struct to a dict; `compiled` compiles the conversion of a field."""
    writers = [(name, compiled(field)) for name, field in dtype.fields]
    return lambda value: {
        name: None if item is None else write(item) for (name, write), item in zip(writers, value, strict=True)
    }


def _conforms(value: Any, dtype: StructType, widen: bool) -> bool:
    if hasattr(type(value), STRUCT_ATTRIBUTE):
        value = vars(value)
    return isinstance(value, Mapping) and all(
        v.conforms(value.get(name), inner, widen=widen) for name, inner in dtype.fields
    )


def _has_form(value: Any, dtype: StructType) -> bool:
    return (
        isinstance(value, list)
        and len(value) == len(dtype.fields)
        and all(v.has_form(item, of) for item, (_, of) in zip(value, dtype.fields, strict=True))
    )


def _verify(dtype: StructType) -> v.Check:
    checks = [(name, v.verify(field)) for name, field in dtype.fields]

    def check_all(value: list[Any]) -> None:
        for (name, check), item in zip(checks, value, strict=True):
            at(f"struct {dtype.name}, field {name}", check, item)

    return check_all


v.CONVERSIONS[StructType] = v.Conversions(
    written="a @struct class",
    cast=_cast,
    conforms=_conforms,
    arrow=lambda dtype: pa.struct([(name, v.arrow_type(field)) for name, field in dtype.fields]),
    decode=_decoded,
    to_json=lambda dtype: _shown(dtype, v.to_json),
    from_json=_read_json,
    has_form=_has_form,
    inside=_verify,
    to_arrow=lambda dtype: _shown(dtype, v.to_arrow),
)


@struct
class Window:
    """An interval of time: `begin` is in it, `end` is not."""

    begin: datetime
    end: datetime
