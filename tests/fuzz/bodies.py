"""Malformed bodies: JSON, Arrow, protobuf and compressed ones, and what can be cut or turned in any of them."""

import copy
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import orjson
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from caraway.apps.server.pages.session import FORM
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from tests.fuzz.valid import ARROW, JSON, PROTOBUF, Valid, arrow_bytes

# A body with its headers.
Body = tuple[bytes, tuple[tuple[str, str], ...]]
MB = 1024 * 1024
# More than a body may have, so that such are among those that are sent; and small beside the memory of a machine.
LARGEST = 40 * MB

# Stands in a document for what JSON's writer can't write; `_rendered` puts the text in its place.
MARK = "@fuzz@"
RAW: Sequence[str] = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "1e-999",
    "9" * 400,
    "-" + "9" * 400,
    "0" * 50 + "1",
    "1.",
    ".5",
    "0x10",
    "tru",
    "nul",
    '"\\ud800"',
    '"\\u0000"',
    '"\\x"',
    '"unterminated',
    "[" * 5_000,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    "[" + "[]," * 300_000 + "[]]",
    "[" + "{}," * 200_000 + "{}]",
    "[" + "null," * 500_000 + "null]",
    "{" + ",".join(f'"k{n}":{n}' for n in range(50_000)) + "}",
    "1 2",
    ",",
    "]",
    "//",
)
VALUES: Sequence[Any] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**63 - 1,
    -(2**63),
    2**64,
    1e308,
    5e-324,
    "",
    "x",
    "\0",
    "../../etc/passwd",
    "a\r\nX-Injected: 1",
    "État\U0001f600\u202e",
    "9" * 5_000,
    "1e400",
    "NaN",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2024-02-30T25:61:61Z",
    "1 Jan 99999999999999999999 00:00 +0000",
    "'; DROP TABLE commits; --",
    "{}",
    "%00%s%n",
    "x" * (2 * MB),
    [],
    {},
    [[]],
    [None],
    [1, "a", None],
    [{"pot": 1}] * 1_000,
    list(range(20_000)),
    {"pot": 1},
    {"Tap.pot": [1], "Tap.raw": [1, 2]},
    {"": 1},
    {"base64": "!!"},
    {"base64": "AAAA"},
)


def of_json(random: Random, valid: Valid) -> Body:
    """Put one or a few wrong values into a document, or take something out of it."""
    document = (
        orjson.loads(valid.body) if valid.content_type == JSON and valid.body else copy.deepcopy(random.choice(VALUES))
    )
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        document = random.choice((_replaced, _replaced, _without, _renamed))(random, document)
    if random.random() < 0.2:
        # Last: a change of an element that stands there many times would be as many changes.
        document = _repeated(random, document)
    return _rendered(random, document), ()


def of_form(random: Random, valid: Valid) -> Body:
    """Make a form with too many fields, with large or wrong ones, or one that is compressed."""
    if valid.content_type != FORM:
        return of_json(random, valid)
    more = random.choice(
        (
            b"&" + b"a=&" * random.choice((10, 5_000, 10_000_000)),
            b"&" + b"&".join(b"k%d=" % number for number in range(20_000)),
            b"=%zz&%ff=%00&&==;",
            *(
                b"&%s=" % field + _rendered(random, f"{MARK}{number}")
                for number in range(len(RAW))
                for field in (b"rows", b"inputs", b"row")
            ),
            b"&next=" + b"/" * 100_000,
            b"&role=x" * 2_000,
        )
    )
    body = valid.body + more
    return (gzip.compress(body), (("Content-Encoding", "gzip"),)) if random.random() < 0.2 else (body[:LARGEST], ())


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for position, item in enumerate(value[:20]):
            yield value, position
            yield from _places(item)


def _replaced(random: Random, document: Any) -> Any:
    places = list(_places(document))
    # A copy: what is put into a document may be changed there.
    wrong = copy.deepcopy(random.choice((random.choice(VALUES), f"{MARK}{random.randrange(len(RAW))}")))
    if not places or random.random() < 0.1:
        return wrong
    holder, key = random.choice(places)
    holder[key] = wrong
    return document


def _without(random: Random, document: Any) -> Any:
    if places := list(_places(document)):
        holder, key = random.choice(places)
        if isinstance(holder, dict) or key < len(holder):
            del holder[key]
    return document


def _renamed(random: Random, document: Any) -> Any:
    if places := [(holder, key) for holder, key in _places(document) if isinstance(holder, dict)]:
        holder, key = random.choice(places)
        name = random.choice((key.upper(), key + "\0", "../" + key, key[:100] * 10_000, "", key[:-1], "__proto__"))
        holder[name] = holder.get(key)
    return document


def _repeated(random: Random, document: Any) -> Any:
    lists = [holder[key] for holder, key in _places(document) if isinstance(holder[key], list) and holder[key]]
    if lists:
        found = random.choice(lists)
        times = LARGEST // len(json.dumps(found[:1]))
        found.extend(found[:1] * min(random.choice((1, 100, 20_000)), times))
    return document


def _rendered(random: Random, document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=random.random() < 0.5)
    for number, raw in enumerate(RAW):
        text = text.replace(f'"{MARK}{number}"', raw, 2)
    return text.encode("utf-8", "surrogatepass")[:LARGEST]


def turned(random: Random, valid: Valid) -> Body:
    """Turn, cut out, or repeat bytes of a body."""
    body = bytearray(valid.body or b"{}")
    for _ in range(random.choice((1, 3, 20))):
        place = random.randrange(len(body) or 1)
        match random.randrange(4):
            case 0 if body:
                body[place] = random.randrange(256)
            case 1:
                body[place:place] = random.randbytes(random.choice((1, 8, 100)))
            case 2:
                del body[place : place + random.choice((1, 4, 50))]
            case _:
                body[place:place] = random.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\0", b"\xf8\x88"))
    return bytes(body), ()


def of_protobuf(random: Random, valid: Valid) -> Body:
    """Put one or a few wrong values into the definitions of a commit, or take something out of them."""
    if valid.content_type != PROTOBUF or not valid.body:
        return turned(random, valid)
    message = pb.CommitRequest.FromString(valid.body)
    for _ in range(random.choice((1, 1, 2, 5))):
        holder, found, value = random.choice(list(_set_fields(message)))
        wrong = None if random.random() < 0.1 else _wrong(random, found, value)
        if wrong is None:
            holder.ClearField(found.name)
        elif found.is_repeated:
            getattr(holder, found.name)[random.randrange(len(value))] = wrong
        else:
            setattr(holder, found.name, wrong)
    return message.SerializeToString(), ()


def _set_fields(message: Message) -> Iterator[tuple[Message, FieldDescriptor, Any]]:
    for found, value in message.ListFields():
        yield message, found, value
        kind = found.message_type
        # A map has keys and values that are set in another way; it can be left out.
        if kind is not None and not kind.GetOptions().map_entry:
            for inner in value if found.is_repeated else (value,):
                yield from _set_fields(inner)


def _wrong(random: Random, found: FieldDescriptor, value: Any) -> Any:
    """Return a wrong value of a field's type; None if the field can only be left out."""
    match found.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if found.type == FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.choice((0, 1, 100)))
        case FieldDescriptor.CPPTYPE_STRING:
            texts = [text for text in VALUES if isinstance(text, str)]
            first = value[0] if found.is_repeated else value
            return random.choice((*texts, f"{first}\0", first * 2, first[:-1], first.swapcase()))
        case FieldDescriptor.CPPTYPE_INT64:
            return random.choice((0, -1, 1, 2**63 - 1, -(2**63)))
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_ENUM:
            return random.choice((0, -1, 1, 99, 2**31 - 1, -(2**31)))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return random.choice((0, 1, 99, 2**32 - 1))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return random.choice((0.0, -1.0, 1e308, 5e-324, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_BOOL:
            return not value
        case _:
            return None


def cut(random: Random, valid: Valid) -> Body:
    """End a body too soon; its length is that of what is left."""
    return valid.body[: random.randrange(len(valid.body) + 1)], ()


def compressed(random: Random, valid: Valid) -> Body:
    """Compress a body well or badly, or send a small one that becomes a large one."""
    match random.randrange(10):
        case 0:
            return _bomb("zeros"), (("Content-Encoding", "gzip"),)
        case 1:
            return _bomb("rows"), (("Content-Encoding", "gzip"),)
        case 2:
            return _bomb("lists"), (("Content-Encoding", "gzip"),)
        case 3:
            return gzip.compress(gzip.compress(b"\0" * (30 * MB))), (("Content-Encoding", "gzip"),)
        case 4:
            packed = gzip.compress(valid.body)
            return packed[: random.randrange(len(packed))], (("Content-Encoding", "gzip"),)
        case 5:
            wrong = bytearray(gzip.compress(valid.body))
            wrong[random.randrange(len(wrong))] ^= 0xFF
            return bytes(wrong), (("Content-Encoding", "gzip"),)
        case 6:
            return valid.body, (("Content-Encoding", random.choice(("gzip", "zstd", "br", "deflate", "x" * 5_000))),)
        case 7:
            return _bomb("zstd"), (("Content-Encoding", "zstd"),)
        case 8:
            return zlib.compress(valid.body)[:-2], (("Content-Encoding", "deflate"),)
        case _:
            return gzip.compress(valid.body) + b"rest", (("Content-Encoding", "gzip"),)


@cache
def _bomb(kind: str) -> bytes:
    """Return a small body that becomes a large one; it is made once, which takes a second and hundreds of megabytes."""
    match kind:
        case "rows":
            return gzip.compress(b'{"webhook":"garden","endpoint":"pots","data":[' + b"{}," * 2_000_000 + b"{}]}")
        case "lists":
            return gzip.compress(b"[" * (20 * MB))
        case "zeros":
            return gzip.compress(b"\0" * (64 * MB))
        case _:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as stream:
                stream.write(b"\0" * (64 * MB))
            packed: bytes = sink.getvalue().to_pybytes()
            return packed


def of_arrow(random: Random, valid: Valid) -> Body:
    """Make a stream of Arrow that is broken, or tells of more than it holds."""
    del valid
    headers = (("Content-Type", ARROW),)
    made = random.choice(ARROW_TABLES)(random)
    body = made if isinstance(made, bytes) else arrow_bytes(made)
    if random.random() < 0.4:
        turned_body = bytearray(body)
        for _ in range(random.choice((1, 2, 10))):
            turned_body[random.randrange(len(turned_body))] = random.randrange(256)
        body = bytes(turned_body)
    if random.random() < 0.15:
        body = body[: random.randrange(len(body))]
    return body, headers


def _pots(random: Random) -> pa.Table:
    return pa.table({"Tap.pot": pa.array([1, 2, random.randrange(100)], pa.int64())})


def _dictionary(random: Random) -> pa.Table:
    text = "x" * random.choice((10, MB))
    indices = pa.array([0] * random.choice((10, 2_000, 90_000)), pa.int32())
    return pa.table({"Tap.raw": pa.DictionaryArray.from_arrays(indices, pa.array([text]))})


def _nulls(random: Random) -> pa.Table:
    return pa.table({"Tap.pot": pa.nulls(random.choice((10, 100_001, 5_000_000)))})


def _instants(random: Random) -> pa.Table:
    unit = random.choice(("s", "ms", "us", "ns"))
    zone = random.choice((None, "UTC", "Nowhere/Land", "+99:99", ""))
    numbers = [random.choice((0, 2**62, -(2**62), 2**63 - 1, -(2**63))) for _ in range(3)]
    times = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, zone))
    return pa.table({"Tap.pot": pa.array([1, 2, 3], pa.int64()), random.choice(("timestamps", "Tap.raw")): times})


def _days(random: Random) -> pa.Table:
    kind = random.choice((pa.date32(), pa.date64()))
    number = random.choice((2**31 - 1, -(2**31), 0))
    days = pa.array([number], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind, safe=False)
    return pa.table({"Tap.raw": days, "Tap.pot": pa.array([1], pa.int64())})


def _kinds(random: Random) -> pa.Table:
    column = random.choice(
        (
            pa.array([2**64 - 1], pa.uint64()),
            pa.array([1.5], pa.float16()),
            pa.array([[1, 2]], pa.list_(pa.int8())),
            pa.array([[[[[]]]]]),
            pa.array([{"a": {"b": None}}]),
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([b"\xff\xfe"], pa.binary()),
            pa.array([10**37], pa.decimal128(38, 0)),
            pa.array([2**62], pa.duration("s")),
            pa.array([2**62], pa.time64("ns")),
            pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]),
            pa.RunEndEncodedArray.from_arrays(pa.array([random.choice((1, 2**31 - 1))], pa.int32()), pa.array(["x"])),
        )
    )
    return pa.table({"Tap.pot": column})


def _names(random: Random) -> pa.Table:
    names = random.choice((["Tap.pot", "Tap.pot"], ["", "\0"], ["../x", "Tap.pot"], ["Tap.pot" * 10_000, "Tap.pot"]))
    return pa.table([pa.array([1]), pa.array([2])], names=names)


def _no_columns(random: Random) -> bytes:
    del random
    return arrow_bytes(pa.table({}))


def _packed(random: Random) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"Tap.pot": pa.array([7] * random.choice((1_000, 99_000)), pa.int64())})
    options = pa.ipc.IpcWriteOptions(compression=random.choice(("lz4", "zstd")))
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _wide(random: Random) -> pa.Table:
    return pa.table({f"c{n}": pa.array([1]) for n in range(random.choice((100, 5_000)))})


ARROW_TABLES: Sequence[Callable[[Random], pa.Table | bytes]] = (
    _pots,
    _pots,
    _dictionary,
    _nulls,
    _instants,
    _instants,
    _days,
    _kinds,
    _kinds,
    _names,
    _no_columns,
    _packed,
    _wide,
)
