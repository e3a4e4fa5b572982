"""The messages whose shape isn't that of their spec: trees, external systems and the format of CSV files.

Each function returns the codec of a type for a message, with `codec_of` for the codecs of the parts.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias, cast

from caraway.errors import InvalidInputError
from caraway.graph.systems import SYSTEMS, WEBHOOK, CSVFormat, RegisteredSystem, Secretish, System
from caraway.graph.wire.codec import Argument, Choice, Codec, Content, Nodes, Value
from caraway.graph.wire.constants import decode_constant, encode_constant

# The descriptor of a message. The type is Any, because protobuf's annotations declare that each part of a descriptor
# may be None.
Message: TypeAlias = Any
# A tree has at most this many nodes and this many levels. Definitions have some dozens of each. Levels are limited
# because the code that walks trees calls itself several times for each level, and Python limits the depth of calls.
MAX_NODES, MAX_LEVELS = 10_000, 200
# A function that returns the codec of a type (an annotation such as `Node | None`) for a message.
CodecOf = Callable[[Any, Any], Codec]


def constant(_hint: object, _message: Message, _codec_of: CodecOf) -> Codec:
    """Return the codec of constants."""
    return Codec(lambda value, _: encode_constant(value), lambda message, _: decode_constant(message))


def tree(
    hint: object,
    message: Message,
    codec_of: CodecOf,
    *,
    kind: str,
    node: str,
    foreign: type[ValueError] | tuple[()],
) -> Codec:
    """Return the codec of trees: a list of nodes, those that a node refers to before it, the root last.

    Args:
        hint: The union of the nodes.
        message: The message of the tree.
        codec_of: The function that returns the codecs of the parts.
        kind: The noun by which errors name a tree.
        node: The noun by which errors name a node, with its article.
        foreign: The error of decoding that means that another version has written the tree.
    """
    of_node = cast("Choice", codec_of(hint, message.fields_by_name["nodes"].message_type))

    def encode(root: Value, _: object) -> Argument:
        nodes: list[Argument] = []

        def add(found: Value) -> int:
            case, encode_node = of_node.encoder(type(found))
            nodes.append({case: encode_node(found, add)})
            return len(nodes) - 1

        add(root)
        return {"nodes": nodes}

    def decode(found: Content, _: object) -> Value:
        nodes = Nodes()
        if len(found.nodes) > MAX_NODES:
            raise InvalidInputError(f"the {kind} has {len(found.nodes):,} nodes, at most {MAX_NODES:,} are possible")
        try:
            for encoded in found.nodes:
                nodes.levels = 0
                nodes.append((of_node.decode(encoded, nodes), nodes.levels + 1))
                if nodes.levels >= MAX_LEVELS:
                    break
        except IndexError:
            place = "that comes later, or that another refers to"
            raise InvalidInputError(f"a damaged {kind}: {node} refers to one {place}") from None
        except foreign as error:
            raise InvalidInputError(f"an {kind} that this version of Caraway doesn't know: {error}") from None
        if not nodes:
            raise InvalidInputError(f"a damaged {kind}: it has no {node.rsplit(maxsplit=1)[-1]}s")
        if nodes.levels >= MAX_LEVELS:
            raise InvalidInputError(f"the {kind} has more than {MAX_LEVELS} levels; split it into several")
        if any(nodes[:-1]):
            raise InvalidInputError(f"a damaged {kind}: no other refers to {node} before the last one")
        return nodes[-1][0]

    return Codec(encode, decode, lambda: (of_node,))


def external_system(hint: object, message: Message, codec_of: CodecOf) -> Codec:
    """Return the codec of external systems: a kind, a name, and a map of the settings that aren't None.

    A setting is a text or a secret; numbers are sent as text. A webhook has no settings: its spec is a name.
    """
    if hint is str:
        return Codec(lambda name, _: {"kind": WEBHOOK, "name": name}, lambda found, _: found.name)
    secretish = codec_of(
        Secretish, message.fields_by_name["settings"].message_type.fields_by_name["value"].message_type
    )

    def encode(system: System | RegisteredSystem, _: object) -> Argument:
        if isinstance(system, RegisteredSystem):
            return {"kind": system.kind, "name": system.name, "registered": True}
        settings = {
            f.name: secretish.encode(str(value) if f.type is int else value, None)
            for f in fields(system)
            if f.name != "name" and (value := getattr(system, f.name)) is not None
        }
        return {"kind": system.kind, "name": system.name, "settings": settings}

    def decode(found: Content, _: object) -> System | RegisteredSystem:
        kind = found.kind
        if found.registered:
            return RegisteredSystem(kind=kind, name=found.name)
        if kind not in SYSTEMS:
            raise InvalidInputError(f"{kind!r} is no kind of system; there are {', '.join(sorted(SYSTEMS))}")
        settings = {name: secretish.decode(value, None) for name, value in found.settings.items()}
        try:
            system = SYSTEMS[kind]
            for name in {f.name for f in fields(system) if f.type is int} & settings.keys():
                settings[name] = int(settings[name])
            return system(name=found.name, **settings)
        except (KeyError, TypeError) as error:
            text = f"{kind} {found.name} has settings of another version of Caraway: {error}"
            raise InvalidInputError(text) from None

    return Codec(encode, decode, lambda: (secretish,))


def csv(_hint: object, _message: Message, _codec_of: CodecOf) -> Codec:
    """Return the codec of the format of CSV files, which has a flag of its own for files whose first line has names."""

    def encode(csv_format: CSVFormat, _: object) -> Argument:
        headers = csv_format.headers
        return {"delimiter": csv_format.delimiter, "first_line_has_names": headers is None, "headers": headers or ()}

    def decode(found: Content, _: object) -> CSVFormat:
        headers = None if found.first_line_has_names else tuple(found.headers)
        return CSVFormat(delimiter=found.delimiter, headers=headers)

    return Codec(encode, decode)
