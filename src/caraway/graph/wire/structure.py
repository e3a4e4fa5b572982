"""Specs to protobuf and back by the names of their fields: one structural codec for all of them.

A class is sent as a message with the same fields, a union as a oneof whose cases are the class names in snake case, a
tuple as a repeated field, a pair as a message with two fields. A node of a tree refers to another by its position.
`caraway.graph.wire.differences` has the exceptions. If only one side has a field, making the codec of its class raises
TypeError.
"""

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor, OneofDescriptor

from caraway.graph.wire import differences
from caraway.graph.wire.codec import (
    PLAIN,
    REFERENCE,
    Codec,
    Member,
    Slot,
    around,
    choice,
    constant,
    enumeration,
    inlined,
    pair,
    record,
    refusing,
    repeated,
    wrapped,
)
from caraway.graph.wire.shapes import Message

# An annotation, such as `Node | None`.
Hint: TypeAlias = Any
# The descriptors of a field and of a oneof. The types are Any, because protobuf's annotations declare that each part of
# a descriptor may be None.
Field: TypeAlias = Any
Oneof: TypeAlias = Any

# The types of protobuf's fields that can hold each scalar type of Python.
_SCALARS: dict[type, set[int]] = {
    bool: {FieldDescriptor.TYPE_BOOL},
    int: {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_SINT32},
    float: {FieldDescriptor.TYPE_DOUBLE},
    str: {FieldDescriptor.TYPE_STRING},
    bytes: {FieldDescriptor.TYPE_BYTES},
}


@cache
def codec_of(hint: Hint, message: Message) -> Codec:
    """Return the codec of a type for a message.

    Raises `TypeError` if the two don't fit: one has a field or a member that the other lacks.
    """
    if message.name in differences.SHAPES:
        return differences.SHAPES[message.name](hint, message, codec_of)
    origin: Any = get_origin(hint)
    if origin is tuple:
        return _tuple(hint, message)
    classes = _classes(hint)
    oneof = next(iter(_oneofs(message).values()), None)
    if oneof is not None and (len(classes) > 1 or len(oneof.fields) == len(message.fields)):
        return _union(hint, oneof, shared={f.name for f in message.fields if f.containing_oneof != oneof})
    (cls,) = classes
    return record(cls, _slots(cls, message, _names(cls)))


def _slots(cls: type, message: Message, names: list[str], besides: Collection[str] = ()) -> list[Slot]:
    """Return the slots of those fields of a class that stand in a message.

    Raises `TypeError` if the message lacks one of them, or has a field that is neither one of them nor in `besides`.
    """
    hints = get_type_hints(cls)
    slots = [_slot(cls, name, hints[name], message) for name in names]
    sent = {differences.FIELDS.get((cls, name), name) for name in names}
    for field in message.fields:
        place = (_oneof(field) or field).name
        if place not in sent and place not in besides and field.full_name not in differences.WITHOUT_SPEC:
            raise TypeError(f"{cls.__name__} has no field for {field.full_name}")
    return slots


def _slot(cls: type, attribute: str, hint: Hint, message: Message) -> Slot:
    name = differences.FIELDS.get((cls, attribute), attribute)
    present, optional = reduce(or_, _classes(hint)), NoneType in get_args(hint)
    if name in _oneofs(message):
        return Slot(attribute, None, _union(present, _oneofs(message)[name]), optional)
    if name not in message.fields_by_name:
        raise TypeError(f"{message.full_name} has no field for {cls.__name__}.{attribute}")
    field = message.fields_by_name[name]
    if (cls, attribute) in differences.EMPTY_IS_NONE:
        return Slot(attribute, name, enumeration(present, empty_is_none=True))
    if optional and not field.has_presence:
        raise TypeError(f"{field.full_name} can't be absent, as {cls.__name__}.{attribute} can")
    return Slot(attribute, name, _field(present, field), optional)


def _field(hint: Hint, field: Field) -> Codec:
    """Return the codec of the values of a type in a field."""
    if field.is_repeated:
        item, _ = get_args(_classes(hint)[0])
        return repeated(_single(item, field))
    return _single(hint, field)


def _single(hint: Hint, field: Field) -> Codec:
    """Return the codec of the values of a type in one place of a field."""
    if field.message_type is not None:
        return codec_of(hint, field.message_type)
    cls = _classes(hint)[0]
    if is_dataclass(cls) and field.type == FieldDescriptor.TYPE_UINT32:
        return REFERENCE
    if issubclass(cls, Enum) and field.type == FieldDescriptor.TYPE_STRING:
        return enumeration(cls, empty_is_none=False)
    if field.type not in _SCALARS.get(cls, ()):
        raise TypeError(f"{field.full_name} is of another type than {hint}")
    return PLAIN


def _tuple(hint: Hint, message: Message) -> Codec:
    """Return the codec of a tuple with a message: one around a repeated field, or one with a field for each item."""
    items = get_args(hint)
    if Ellipsis in items:
        (field,) = message.fields
        return wrapped(field.name, _field(hint, field))
    places = dict.fromkeys(_oneof(field) or field for field in message.fields)
    return pair(
        [
            Slot("", None, _union(item, place))
            if isinstance(place, OneofDescriptor)
            else Slot("", place.name, _field(item, place))
            for item, place in zip(items, places, strict=True)
        ]
    )


def _union(hint: Hint, oneof: Oneof, shared: Collection[str] = ()) -> Codec:
    """Return the codec of a union in a oneof.

    The fields `shared` of the message around the oneof may hold fields of the members. If the oneof serves a wider
    union than `hint`, decoding refuses the members that `hint` lacks.
    """
    message, admitted = oneof.containing_type, _classes(hint)
    noun = differences.NOUNS.get(message.name, "a setting")

    @cache
    def members() -> list[Member]:
        by_name = {f.name: f for f in oneof.fields}
        found: dict[str, list[type]] = {}
        for cls in _classes(differences.WHOLE.get(message.name, hint)):
            case = next((name for name in differences.cases(cls, _names(cls)) if name in by_name), None)
            if case is None:
                raise TypeError(f"{message.full_name}.{oneof.name} has no case for {cls.__name__}")
            found.setdefault(case, []).append(cls)
        if unused := by_name.keys() - found.keys():
            raise TypeError(f"{message.full_name}.{oneof.name} has no class for {', '.join(sorted(unused))}")
        listed = [_member(classes, by_name[case], shared) for case, classes in found.items()]
        return [
            member
            if member.classes[0] in admitted
            else member._replace(
                codec=refusing(member.codec, differences.MISPLACED.get(member.case, f"{noun} of a wrong kind"))
            )
            for member in listed
        ]

    return choice(oneof.name, noun, members)


def _member(classes: list[type], field: Field, shared: Collection[str]) -> Member:
    """Return the member of a union whose case is `field`."""
    cls, names = classes[0], _names(classes[0])
    own = names[0] if len(classes) == len(names) == 1 else None
    if not names and is_dataclass(cls):
        codec = constant(cls())
    elif own is not None and (field.message_type is None or own not in field.message_type.fields_by_name):
        codec = inlined(cls, own, _field(get_type_hints(cls)[own], field))
    elif shared:
        outer = [name for name in names if differences.FIELDS.get((cls, name), name) in shared]
        outside = _slots(cls, field.containing_type, outer, {field.containing_oneof.name})
        inside = _slots(cls, field.message_type, [name for name in names if name not in outer])
        return Member(field.name, classes, around(cls, field.name, outside, inside), around=True)
    else:
        codec = _field(reduce(or_, classes), field)
    return Member(field.name, classes, codec, around=False)


def _classes(hint: Hint) -> list[Any]:
    """Return the members of a union without None; of another type, itself."""
    origin: Any = get_origin(hint)
    members = get_args(hint) if origin in (Union, UnionType) else differences.BASES.get(hint, (hint,))
    return [member for member in members if member is not NoneType]


def _names(cls: type) -> list[str]:
    """Return the names of the fields of a class; a class that is no dataclass has none."""
    return [f.name for f in fields(cls)] if is_dataclass(cls) else []


def _oneof(field: Field) -> Oneof | None:
    """Return the oneof of a field, if it is in one other than those that protobuf makes of optional fields."""
    found = field.containing_oneof
    return None if found is None or found.name.startswith("_") else found


def _oneofs(message: Message) -> dict[str, Oneof]:
    """Return the oneofs of a message by name."""
    return {found.name: found for field in message.fields if (found := _oneof(field)) is not None}
