"""Malformed HTTP: requests as the bytes, in pieces, that go over a socket."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.fuzz import bodies
from tests.fuzz.valid import PROTOBUF, Valid

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes that go over one connection.

    Attributes:
        kind: The mutation that made it.
        pieces: Sent one after the other.
        pause_s: Time between two pieces.
        answered: True if HTTP demands an answer, since the request is well formed and complete.
        number: Its place among the messages of a seed, by which `tests.fuzz.again` makes it again.
    """

    kind: str
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0
    answered: bool = True
    number: int = -1


@dataclass(frozen=True, slots=True)
class Caller:
    """The address of the server, and a token that it accepts."""

    host: str
    token: str


def head(caller: Caller, valid: Valid, length: int | None, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Write a request line and headers; a later header of a name replaces an earlier one."""
    lines = {
        "Host": caller.host,
        "Authorization": f"Bearer {caller.token}",
        "Connection": "close",
        "Content-Type": valid.content_type,
        **dict(valid.headers),
        **dict(headers),
    }
    if length is not None:
        lines["Content-Length"] = str(length)
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{valid.method} {valid.path} HTTP/1.1\r\n{text}\r\n".encode("utf-8", "surrogateescape")


def with_body(make: Callable[[Random, Valid], bodies.Body]) -> Callable[[Random, Valid, Caller], Message]:
    """Return what makes well formed requests with malformed bodies."""

    def message(random: Random, valid: Valid, caller: Caller) -> Message:
        body, headers = make(random, valid)
        method = "POST" if valid.method == "GET" and random.random() < 0.5 else valid.method
        sent = Valid(method, valid.path, body, valid.content_type, valid.headers)
        return Message(make.__name__, (head(caller, sent, len(body), headers) + body,))

    return message


def untouched(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send a valid request: among malformed ones these must be answered too."""
    del random
    return Message("untouched", (head(caller, valid, len(valid.body)) + valid.body,))


def path(random: Random, valid: Valid, caller: Caller) -> Message:
    """Ask for a path that isn't there, or isn't one."""
    base, _, query = valid.path.partition("?")
    found = random.choice(
        (
            base.replace("Pots", "../../etc/passwd").replace("fuzz", "..%2f..%2fx"),
            base.replace("Pots", "%00").replace("fuzz", "%ff%fe"),
            base.replace("Pots", "x" * 60_000).replace("fuzz", "y" * 60_000),
            base.replace("Pots", "État😀").replace("fuzz", "%F0%9F%98%80"),
            base + "/" + "a/" * 1_000,
            base + "%2e%2e/%2e%2e/",
            base.upper(),
            "//evil.example" + base,
            "http://evil.example" + base,
            "*",
            base + ";x=1#frag",
        )
    )
    query = random.choice(
        (
            query,
            "preview=maybe",
            "limit=-1",
            "limit=" + "9" * 400,
            "&" * 5_000,
            "a=%zz&%00=%ff",
            "outputs=" + "x," * 9_000,
        )
    )
    sent = Valid(valid.method, f"{found}?{query}", valid.body, valid.content_type, valid.headers)
    # A path with bytes that no URI has may be refused by closing the connection.
    plain = sent.path.isascii() and found != "*"
    return Message("path", (head(caller, sent, len(valid.body)) + valid.body,), answered=plain and len(found) < 8_000)


def method(random: Random, valid: Valid, caller: Caller) -> Message:
    """Use a method that the path doesn't have."""
    name = random.choice(("PUT", "OPTIONS", "HEAD", "TRACE", "PATCH", "DELETE", "get", "BREW", "CONNECT"))
    sent = Valid(name, valid.path, valid.body, valid.content_type, valid.headers)
    return Message("method", (head(caller, sent, len(valid.body)) + valid.body,), answered=name != "CONNECT")


def header(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send headers of our own with values that they can't have."""
    name, value = random.choice(
        (
            ("X-Caraway-Branch", "../main"),
            ("X-Caraway-Branch", "x" * 7_000),
            ("X-Caraway-Branch", "nowhere"),
            ("X-Fennel-Branch", "État"),
            ("Idempotency-Key", "k" * 7_000),
            ("Idempotency-Key", ""),
            ("Caraway-Elapsed-Ms", "-1"),
            ("Caraway-Elapsed-Ms", "9" * 400),
            ("Caraway-Elapsed-Ms", "9" * 15),
            ("Caraway-Elapsed-Ms", "86400000"),
            ("Caraway-Elapsed-Ms", "soon"),
            ("Content-Type", "text/plain"),
            ("Content-Type", "application/" + "x" * 5_000),
            ("Content-Type", "application/json; charset=utf-16"),
            ("Accept", "application/vnd.apache.arrow.stream"),
            ("Accept", "*/*;q=NaN, " * 300),
            ("Accept-Encoding", "gzip;q=99999999999, zstd;q=-1, *"),
            ("Origin", "http://evil.example"),
            ("Host", "evil.example"),
            ("Host", ""),
            ("Expect", "100-continue"),
            ("Expect", "tea"),
            ("Upgrade", "websocket"),
            ("Upgrade", "h2c"),
            ("Range", "bytes=0-99999999999"),
            ("Traceparent", "00-" + "0" * 600),
        )
    )
    answered = name not in {"Expect", "Upgrade"} and value not in {"", "État"}
    sent = head(caller, valid, len(valid.body), ((name, value),)) + valid.body
    return Message("header", (sent,), answered=answered)


def token(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send no token, or a wrong one."""
    value = random.choice(
        (
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Bearer " + caller.token[:-1],
            "Bearer " + caller.token + "x",
            "bearer  " + caller.token,
            "Basic " + "QUFB" * 2_000,
            "Bearer " + "a.b" * 2_000,
            "Bearer \xe9\xff",
            "Bearer ../../token",
            "Bearer car_' OR 1=1 --",
        )
    )
    ascii_only = value.isascii()
    sent = head(caller, valid, len(valid.body), (("Authorization", value),)) + valid.body
    return Message("token", (sent,), answered=ascii_only)


def stranger(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send no token and no session, or a session that isn't one."""
    cookie = random.choice(
        (
            "",
            "caraway_session=",
            "caraway_session=x",
            "caraway_session=" + "x" * 43 + "; caraway_session=" + "y" * 43,
            'caraway_session="\\"; a=b',
            "=;" * 5_000,
            "caraway_session=" + caller.token,
        )
    )
    sent = head(caller, valid, len(valid.body), (("Authorization", ""), ("Cookie", cookie))) + valid.body
    return Message("stranger", (sent,))


def headers_in_number(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send far more, or far longer, headers than anybody needs."""
    flood = random.choice(
        (
            tuple((f"X-{n}", "v") for n in range(10_000)),
            tuple((f"X-{n}", "v" * 4_000) for n in range(100)),
            (("X-Long", "v" * MB),),
            (("Cookie", "a=b; " * 50_000),),
            (("Cookie", 'caraway_session="' + "\\" * 60_000 + '"'),),
        )
    )
    return Message("headers_in_number", (head(caller, valid, len(valid.body), flood) + valid.body,), answered=False)


def length(random: Random, valid: Valid, caller: Caller) -> Message:
    """Lie about the length of a body."""
    body = valid.body or b"{}"
    said = random.choice(
        (
            ("Content-Length", str(len(body) + random.choice((1, 1_000, 10**9, 2**63, 10**30)))),
            ("Content-Length", str(max(0, len(body) - random.choice((1, len(body)))))),
            ("Content-Length", random.choice(("-1", "abc", "", "1e3", "0x10", "+5", "5, 5", "\u0665"))),
            ("Transfer-Encoding", "chunked"),
            ("Transfer-Encoding", "gzip, chunked"),
            ("Transfer-Encoding", "identity"),
        )
    )
    name, value = said
    also = random.random() < 0.3
    sent = head(caller, valid, len(body) if also and name != "Content-Length" else None, (said,)) + body
    del value
    return Message("length", (sent,), answered=False)


def chunks(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send chunks that are malformed, or that never end."""
    body = valid.body or b"{}"
    begin = head(caller, valid, None, (("Transfer-Encoding", "chunked"),))
    whole = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    pieces: tuple[bytes, ...]
    answered = False
    match random.randrange(9):
        case 0:
            pieces, answered = (begin + whole + b"0\r\n\r\n",), True
        case 1:
            pieces = (begin + whole,)
        case 2:
            pieces = (begin, b"zz\r\n", body)
        case 3:
            pieces = (begin, b"f" * 17 + b"\r\n", body)
        case 4:
            pieces = (begin, b"5;ext=" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n")
        case 5:
            pieces = (begin + whole + b"0\r\n" + b"".join(b"T%d: v\r\n" % n for n in range(2_000)) + b"\r\n",)
        case 6:
            pieces = (begin, *(b"1\r\n[\r\n" for _ in range(200)))
        case 7:
            # Never ending, and more than a body may have.
            pieces = (begin, *((b"100000\r\n" + b" " * MB + b"\r\n",) * 40))
        case _:
            pieces = (begin, whole[:-3])
    return Message("chunks", pieces, answered=answered)


def slow(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send a request byte by byte, and not to its end."""
    body = valid.body or b"{}"
    sent = head(caller, valid, len(body)) + body
    count = random.randrange(5, 40)
    stop = random.randrange(1, len(sent))
    size = max(1, stop // count)
    return Message("slow", tuple(sent[n : n + size] for n in range(0, stop, size)), pause_s=0.01, answered=False)


def pipelined(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send many requests at once over one connection."""
    one = head(caller, valid, len(valid.body), (("Connection", "keep-alive"),)) + valid.body
    wrong = random.choice((b"", b"GARBAGE\r\n\r\n", b"\0" * 100, one[: len(one) // 2]))
    return Message("pipelined", (one * random.choice((2, 20, 60)) + wrong,), answered=False)


def request_line(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send what isn't HTTP/1.1."""
    rest = head(caller, valid, len(valid.body)).partition(b"\r\n")[2] + valid.body
    line = random.choice(
        (
            b"GET /\r\n",
            b"GET / HTTP/0.9\r\n",
            b"GET / HTTP/3.0\r\n",
            b"GET / HTTP/1.1 extra\r\n",
            b"GET  /api/v1/health  HTTP/1.1\r\n",
            b"\r\n\r\n\r\nGET / HTTP/1.1\r\n",
            b"G\0T / HTTP/1.1\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\n",
            b"GET " + b"/a" * 60_000 + b" HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            random.randbytes(random.choice((1, 100, 10_000))),
            b"A" * 200_000,
        )
    )
    return Message("request_line", (line + rest,), answered=False)


def broken_headers(random: Random, valid: Valid, caller: Caller) -> Message:
    """Send headers that aren't any."""
    first, _, rest = (head(caller, valid, len(valid.body)) + valid.body).partition(b"\r\n")
    wrong = random.choice(
        (
            b"NoColon\r\n",
            b": empty\r\n",
            b"X Y: space\r\n",
            b"X-Nul: a\0b\r\n",
            b"X-Fold: a\r\n b\r\n",
            b"Content-Length: 5\r\nContent-Length: 6\r\n",
            b"Host: a\r\nHost: b\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            b"X-Bare: a\nX-Other: b\r",
            b"\xff\xff: \xff\r\n",
        )
    )
    return Message("broken_headers", (first + b"\r\n" + wrong + rest,), answered=False)


# Only those that have definitions are asked with damaged ones.
DEFINITIONS = with_body(bodies.of_protobuf)
KINDS: Sequence[tuple[int, Callable[[Random, Valid, Caller], Message]]] = (
    (30, with_body(bodies.of_json)),
    (10, with_body(bodies.turned)),
    (5, with_body(bodies.cut)),
    (6, with_body(bodies.of_form)),
    (4, with_body(bodies.compressed)),
    (12, with_body(bodies.of_arrow)),
    (5, DEFINITIONS),
    (5, untouched),
    (6, path),
    (3, method),
    (6, header),
    (4, token),
    (4, stranger),
    (2, headers_in_number),
    (4, length),
    (4, chunks),
    (2, slow),
    (2, pipelined),
    (3, request_line),
    (3, broken_headers),
)


def messages(seed: int, number: int, valid: Sequence[Valid], caller: Caller) -> Iterator[Message]:
    """Yield as many malformed messages, the same for the same seed; over all endpoints in turn.

    Each is made only when the caller takes it, since some have tens of megabytes.
    """
    random = Random(seed)
    weights = [weight for weight, _ in KINDS]
    defining = [item for item in valid if item.content_type == PROTOBUF]
    for count in range(number):
        _, make = random.choices(KINDS, weights)[0]
        of = valid[count % len(valid)]
        if make is DEFINITIONS and defining:
            of = random.choice(defining)
        elif make.__name__ == "message" and random.random() < 0.3:
            # Endpoints that take data deserve more of the bodies.
            of = random.choice([item for item in valid if item.body])
        yield replace(make(random, of, caller), number=count)
