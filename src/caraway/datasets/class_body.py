"""Reading of a dataset's fields from the class body that a user writes."""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from caraway.datasets.fields import FieldMarker
from caraway.dtypes.annotations import STRUCT_ATTRIBUTE, dtype_of, own_annotations
from caraway.dtypes.structs import take_as_struct
from caraway.dtypes.types import DATE, DATETIME, DataType, OptionalType, type_name
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.capture.code_trees import fields_text
from caraway.graph.specs import FieldSpec

RESERVED = ("cls", "self", "fields", "key_fields", "on_demand", "timestamp_field", "fqn")

# The marker of a field that is declared without `= field(...)`: no key, no timestamp and no erase key.
NO_MARK = FieldMarker(key=False, timestamp=False, erase_key=False)


def fields_of(body: type, local_names: Mapping[str, Any]) -> tuple[FieldSpec, ...]:
    """Return the fields that a class body declares, in order.

    Annotations that are strings may refer to `local_names`, the names where the class is defined.
    """
    where = f"dataset {body.__name__}"
    annotations = own_annotations(body, local_names)
    markers = {name: value for name, value in vars(body).items() if isinstance(value, FieldMarker)}
    texts = fields_text(body)
    _check_names(where, annotations, markers, [text.name for text in texts])
    comments = {text.name: text.comment for text in texts}
    fields = [
        _field(where, name, annotation, markers.get(name, NO_MARK), comments.get(name, ""))
        for name, annotation in annotations.items()
    ]
    timestamp = _timestamp(fields, [name for name in annotations if markers.get(name, NO_MARK).timestamp], where)
    return tuple(replace(f, timestamp=True, dtype=DATETIME) if f.name == timestamp else f for f in fields)


def _check_names(
    where: str, annotations: Mapping[str, Any], markers: Mapping[str, FieldMarker], written: Sequence[str]
) -> None:
    """Check the names of fields; `written` has those in the text of the class, where one may stand twice."""
    if wrong := [name for name in annotations if name in RESERVED]:
        raise DefinitionError(
            f"{where}: reserved names can't be fields: {', '.join(wrong)}; reserved: {', '.join(RESERVED)}"
        )
    if twice := sorted({name for name in written if written.count(name) > 1}):
        raise DefinitionError(f"{where}: field {', '.join(twice)} is declared twice; names are unique")
    if untyped := next((name for name in markers if name not in annotations), None):
        raise DefinitionError(f"{where}: {untyped} has no type; write {untyped}: int = field(...), of whatever type")


def _field(where: str, name: str, annotation: Any, marker: FieldMarker, comment: str) -> FieldSpec:
    dtype = _type(where, name, annotation)
    if marker.key and isinstance(dtype, OptionalType):
        raise DefinitionError(f"{where}: key {name} is {type_name(dtype)}; a key can't be optional")
    metadata = marker.metadata if marker.metadata.description else replace(marker.metadata, description=comment)
    return FieldSpec(name=name, dtype=dtype, key=marker.key, erase_key=marker.erase_key, metadata=metadata)


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
