"""Reading of a dataset's fields from the class body that a user writes."""

import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from caraway.datasets.fields import FieldMarker
from caraway.dtypes.annotations import STRUCT_ATTRIBUTE, dtype_of, own_annotations
from caraway.dtypes.structs import take_as_struct
from caraway.dtypes.types import DATE, DATETIME, DataType, OptionalType, type_name
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.functions.capture.code_trees import fields_text
from caraway.graph.specs import FieldSpec, Metadata

RESERVED = ("cls", "self", "fields", "key_fields", "on_demand", "timestamp_field", "fqn")


@dataclass(frozen=True, slots=True)
class _Written:
    """A field as the class body has it."""

    annotation: Any
    marker: FieldMarker | None


def fields_of(body: type, namespace: Mapping[str, Any]) -> tuple[FieldSpec, ...]:
    """Return the fields that a class body declares, in order.

    Args:
        body: The class.
        namespace: The names in the scope of the class, for annotations that are strings.

    Raises:
        DefinitionError: A field is wrong, or there isn't one timestamp; the message names dataset and field.
        DefinitionTypeError: A field is of one struct or another.
    """
    where = f"dataset {body.__name__}"
    written = _written(body, namespace, where)
    comments = {field.name: field.comment for field in fields_text(body)}
    fields = [_field(where, name, w, comments.get(name, "")) for name, w in written.items()]
    marked = [name for name, w in written.items() if w.marker is not None and w.marker.timestamp]
    timestamp = _timestamp(fields, marked, where)
    return tuple(replace(f, timestamp=True, dtype=DATETIME) if f.name == timestamp else f for f in fields)


def _written(body: type, namespace: Mapping[str, Any], where: str) -> dict[str, _Written]:
    module = vars(sys.modules[body.__module__]) if body.__module__ in sys.modules else {}
    annotations = own_annotations(body, {**module, **namespace})
    if wrong := [name for name in annotations if name in RESERVED]:
        raise DefinitionError(
            f"{where}: reserved names can't be fields: {', '.join(wrong)}; reserved: {', '.join(RESERVED)}"
        )
    if twice := _annotated_twice(body):
        raise DefinitionError(f"{where}: field {', '.join(twice)} is declared twice; names are unique")
    for name, value in vars(body).items():
        if isinstance(value, FieldMarker) and name not in annotations:
            raise DefinitionError(f"{where}: {name} has no type; write {name}: int = field(...), of whatever type")
    values = {name: vars(body).get(name) for name in annotations}
    return {
        name: _Written(annotation, value if isinstance(value := values[name], FieldMarker) else None)
        for name, annotation in annotations.items()
    }


def _annotated_twice(body: type) -> list[str]:
    """Return the fields that are annotated twice in the text of a class; Python itself keeps the last of them."""
    names = [field.name for field in fields_text(body)]
    return sorted({name for name in names if names.count(name) > 1})


def _field(where: str, name: str, written: _Written, comment: str) -> FieldSpec:
    marker = written.marker
    dtype = _type(where, name, written.annotation)
    is_key = marker is not None and marker.key
    if is_key and isinstance(dtype, OptionalType):
        raise DefinitionError(f"{where}: key {name} is {type_name(dtype)}; a key can't be optional")
    metadata = marker.metadata if marker is not None else Metadata()
    return FieldSpec(
        name=name,
        dtype=dtype,
        key=is_key,
        erase_key=marker is not None and marker.erase_key,
        metadata=metadata if metadata.description else replace(metadata, description=comment),
    )


def _type(where: str, name: str, annotation: Any) -> DataType:
    try:
        take_as_struct(annotation)
        return dtype_of(annotation)
    except (DefinitionError, DefinitionTypeError) as error:
        refuse = DefinitionTypeError if _mixes_structs(annotation) else DefinitionError
        raise refuse(f"{where}: field {name}: {error}") from None


def _mixes_structs(annotation: Any) -> bool:
    parts = typing.get_args(annotation)
    structs = [part for part in parts if STRUCT_ATTRIBUTE in getattr(part, "__dict__", {})]
    return len(structs) > 1 or any(_mixes_structs(part) for part in parts)


def _timestamp(fields: Sequence[FieldSpec], marked: Sequence[str], where: str) -> str:
    if len(marked) > 1:
        raise DefinitionError(f"{where}: {', '.join(marked)} are all marked as the timestamp; a dataset has one")
    if marked:
        if any(f.name == marked[0] and f.dtype == DATE for f in fields):
            raise DefinitionError(f"{where}: timestamp {marked[0]} is date; the timestamp is datetime")
        return marked[0]
    found = [f.name for f in fields if f.dtype == DATETIME and not f.key]
    if not found:
        raise DefinitionError(f"{where} has no timestamp; it needs a field of type datetime that isn't a key")
    if len(found) > 1:
        raise DefinitionError(
            f"{where}: {', '.join(found)} are datetime; mark one as the timestamp: {found[0]}: datetime = "
            "field(timestamp=True)"
        )
    return found[0]
