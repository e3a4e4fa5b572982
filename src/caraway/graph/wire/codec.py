"""Codecs between a value and the content of a field of a protobuf message, made of the codecs of its parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

from caraway.errors import InvalidInputError

# A spec, a part of one, or a scalar.
Value: TypeAlias = Any
# The content of a field of a message: another message, a repeated field, or a scalar.
Content: TypeAlias = Any
# The argument of a message's constructor for a field: a scalar, a list, or a dict of the fields of another message.
Argument: TypeAlias = Any
# A function that appends a node to the tree that is being encoded, and returns the node's position.
Add: TypeAlias = Callable[[Value], int]


class Nodes(list[Any]):
    """The nodes of a tree that have been decoded: each with its levels, or None once another node refers to it.

    If two others could refer to a node, a small message would become a large tree, because all code walks trees.
    `levels` are those below the node that is being decoded.
    """

    levels = 0


# The second argument resolves references between the nodes of a tree: an `Add` for encoding, and for decoding the
# `Nodes` that were decoded so far. Outside of a tree the argument isn't used.
Encode = Callable[[Value, Any], Argument]
Decode = Callable[[Content, Any], Value]


@dataclass(frozen=True, slots=True)
class Codec:
    """Encoding to protobuf, and decoding. `parts` returns the codecs that this one uses, for a test that visits all."""

    encode: Encode
    decode: Decode
    parts: Callable[[], Iterable["Codec"]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Codec):
    """The codec of a union.

    `encoder` returns the case of a class and the function that encodes its values; for the case None, that function
    returns the arguments of the whole message, case included.
    """

    encoder: Callable[[type], tuple[str | None, Encode]]


class Slot(NamedTuple):
    """A field of a class (`attribute`), and the field of the message that holds it.

    The field None stands for a oneof of the message, whose case `codec` chooses. The value of an `optional` slot is
    None if the field of the message isn't set.
    """

    attribute: str
    field: str | None
    codec: Codec
    optional: bool = False


class Member(NamedTuple):
    """The classes of a union that have one case of a oneof, and their codec.

    If `around`, the codec is for the message around the oneof instead of the case alone.
    """

    case: str
    classes: list[type]
    codec: Codec
    around: bool


def _as_is(value: Value, _: object) -> Value:
    return value


def _position(node: Value, add: Add) -> int:
    return add(node)


def _node_at(position: int, nodes: Nodes) -> Value:
    if nodes[position] is None:
        raise IndexError(position)
    node, levels = nodes[position]
    nodes[position] = None
    nodes.levels = max(nodes.levels, levels)
    return node


PLAIN = Codec(_as_is, _as_is)
# The codec of references between nodes: a node is sent as its position in the tree.
REFERENCE = Codec(_position, _node_at)


def constant(value: object) -> Codec:
    """Return the codec of a class without fields, whose only value is `value`."""
    return Codec(lambda _value, _add: {}, lambda _message, _nodes: value)


def enumeration(cls: Callable[[str], Any], *, empty_is_none: bool) -> Codec:
    """Return the codec of an enumeration of texts; decoding raises ValueError for other texts."""
    if empty_is_none:
        return Codec(_as_is, lambda text, _: cls(text) if text else None)
    return Codec(_as_is, lambda text, _: cls(text))


def repeated(one: Codec) -> Codec:
    """Return the codec of a tuple in a repeated field."""
    encode_one, decode_one = one.encode, one.decode

    def encode(values: Value, add: Add) -> Argument:
        arguments = []
        for value in values:
            arguments.append(encode_one(value, add))  # noqa: PERF401 (a comprehension is one more call, see `record`)
        return arguments

    return Codec(
        _as_is if encode_one is _as_is else encode,
        _tuple if decode_one is _as_is else lambda values, nodes: tuple([decode_one(value, nodes) for value in values]),
        lambda: (one,),
    )


def _tuple(values: Iterable[Any], _: object) -> tuple[Any, ...]:
    return tuple(values)


def wrapped(field: str, inner: Codec) -> Codec:
    """Return the codec of a value whose message has nothing but the field that holds it."""
    return Codec(
        lambda value, add: {field: inner.encode(value, add)},
        lambda message, nodes: inner.decode(getattr(message, field), nodes),
        lambda: (inner,),
    )


def inlined(cls: type, attribute: str, inner: Codec) -> Codec:
    """Return the codec of a class whose only field stands in the place of its message."""
    return Codec(
        lambda value, add: inner.encode(getattr(value, attribute), add),
        lambda content, nodes: cls(**{attribute: inner.decode(content, nodes)}),
        lambda: (inner,),
    )


def pair(slots: list[Slot]) -> Codec:
    """Return the codec of a tuple whose items are the fields of a message."""

    def encode(values: Value, add: Add) -> Argument:
        found: dict[Any, Any] = {}
        for value, slot in zip(values, slots, strict=True):
            if slot.codec is REFERENCE:
                found[slot.field] = add(value)
            elif slot.field is None:
                found.update(slot.codec.encode(value, add))
            else:
                found[slot.field] = slot.codec.encode(value, add)
        return found

    def decode(message: Content, nodes: Nodes) -> Value:
        contents = [message if slot.field is None else getattr(message, slot.field) for slot in slots]
        return tuple([slot.codec.decode(content, nodes) for slot, content in zip(slots, contents, strict=True)])

    return Codec(encode, decode, lambda: [slot.codec for slot in slots])


def record(make: Callable[..., Any], slots: list[Slot]) -> Codec:
    """Return the codec of the fields of a class; decoding calls `make` with the values by name."""
    encoders = [(s.attribute, s.field, s.codec.encode, s.optional) for s in slots]
    decoders = [(s.attribute, s.field, s.codec.decode, s.optional) for s in slots]

    def encode(spec: Value, add: Add) -> Argument:
        message: dict[Any, Any] = {}
        for attribute, field, encode_part, optional in encoders:
            value = getattr(spec, attribute)
            if encode_part is _as_is:
                message[field] = value
            elif value is None and optional:
                continue
            elif encode_part is _position:
                # `add` is called directly, without `_position`. Encoding a tree is recursive and Python limits the
                # depth of calls, so one call fewer for each level allows deeper trees.
                message[field] = add(value)
            elif field is None:
                message.update(encode_part(value, add))
            else:
                message[field] = encode_part(value, add)
        return message

    def decode(message: Content, nodes: Nodes) -> Value:
        found = {}
        for attribute, field, decode_part, optional in decoders:
            if field is None:
                found[attribute] = decode_part(message, nodes)
            elif optional and not message.HasField(field):
                found[attribute] = None
            elif decode_part is _as_is:
                found[attribute] = getattr(message, field)
            else:
                found[attribute] = decode_part(getattr(message, field), nodes)
        return make(**found)

    return Codec(encode, decode, lambda: [slot.codec for slot in slots])


def around(cls: type, case: str, outer: list[Slot], inner: list[Slot]) -> Codec:
    """Return the codec of a member of a union whose fields stand in its case and in the message around the oneof."""
    outside, inside = record(dict, outer), record(dict, inner)
    return Codec(
        lambda spec, add: {**outside.encode(spec, add), case: inside.encode(spec, add)},
        lambda message, nodes: cls(**outside.decode(message, nodes), **inside.decode(getattr(message, case), nodes)),
        lambda: (*outside.parts(), *inside.parts()),
    )


def choice(oneof: str, noun: str, members: Callable[[], list[Member]]) -> Choice:
    """Return the codec of a union in a oneof.

    Args:
        oneof: The name of the oneof.
        noun: The noun by which errors name a member of the union, with its article.
        members: A function that returns the members. The first use of the codec calls it, not the making of the codec,
            because a union may contain itself.
    """
    encoders: dict[type, tuple[str | None, Encode]] = {}
    decoders: dict[str | None, tuple[bool, Decode]] = {}

    def encode(value: Value, add: Add) -> Argument:
        case, encode_member = encoder(type(value))
        return encode_member(value, add) if case is None else {case: encode_member(value, add)}

    def encoder(cls: type) -> tuple[str | None, Encode]:
        if cls in encoders:
            return encoders[cls]
        if not encoders:
            encoders.update({c: (None if m.around else m.case, m.codec.encode) for m in members() for c in m.classes})
        # The class of a value may be derived from a member's class: an enum of texts, for example, is sent as a str.
        found = next((encoders[base] for base in cls.__mro__ if base in encoders), None)
        if found is None:
            raise NotImplementedError(f"no wire form for {cls.__name__}")
        return found

    def decode(message: Content, nodes: Nodes) -> Value:
        case = message.WhichOneof(oneof)
        around_it, decode_member = decoders.get(case) or decoder(case)
        return decode_member(message if around_it else getattr(message, case), nodes)

    def decoder(case: str | None) -> tuple[bool, Decode]:
        if not decoders:
            decoders.update({m.case: (m.around, m.codec.decode) for m in members()})
        if case not in decoders:
            raise InvalidInputError(f"{noun} of a kind that this version of Caraway doesn't know")
        return decoders[case]

    return Choice(encode, decode, lambda: [member.codec for member in members()], encoder=encoder)


def refusing(codec: Codec, error: str) -> Codec:
    """Return a codec that encodes as another one, and raises InvalidInputError for everything that is to be decoded."""

    def decode(_message: object, _nodes: object) -> NoReturn:
        raise InvalidInputError(error)

    return Codec(codec.encode, decode, lambda: (codec,))
