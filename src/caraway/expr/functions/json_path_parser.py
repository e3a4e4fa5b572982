"""The grammar of JSONPath: from the text of a path to its segments."""

import re
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from caraway.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Member:
    """The member of an object by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Element:
    """The element of an array at `index`, from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Every `step`-th element from `start` up to `stop`, which is excluded; None is the array's end."""

    start: int
    stop: int | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class All:
    """All members or elements."""


@dataclass(frozen=True, slots=True)
class Where:
    """The members or elements that pass a test."""

    test: "Test"


Selector = Member | Element | Slice | All | Where


@dataclass(frozen=True, slots=True)
class Segment:
    """A step of a path: the union of what its selectors find in a value and, if `deep`, in all that is inside it."""

    selectors: tuple[Selector, ...]
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """A path in a test: from the document (`$`) or from the value under test (`@`)."""

    absolute: bool
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, number, truth value or null."""

    value: Any


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`."""

    operator: str
    left: Path | Constant
    right: Path | Constant


@dataclass(frozen=True, slots=True)
class Exists:
    """A test that the path selects something."""

    path: Path


@dataclass(frozen=True, slots=True)
class And:
    """A test that all of its parts hold."""

    parts: tuple["Test", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A test that one of its parts holds."""

    parts: tuple["Test", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """A test that its part doesn't hold."""

    part: "Test"


Test = Compare | Exists | And | Or | Not

_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"0|[1-9]\d{0,15}", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_COMPARISON = re.compile(r"==|!=|<=|>=|<|>")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"true|false|null")


def parse_segments(text: str) -> tuple[Segment, ...]:
    """Parse a path that begins with `$`.

    Raises:
        DefinitionError: The path is malformed; the message has the position.
    """
    parser = _Parser(text)
    if not parser.take("$"):
        parser.fail('a path begins with "$"')
    segments = parser.segments()
    if not parser.done():
        parser.fail('expected ".key", "[…]" or "..key"')
    return segments


class _Parser:
    """A cursor over the text of a path, and a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, expected: str) -> NoReturn:
        rest = self._text[self._at :]
        found = f'"{rest}"' if rest else "its end"
        raise DefinitionError(
            f'bad JSONPath "{self._text}": {expected}, found {found} at position {self._at}; a path is written as '
            "$.key, $['key'], $[0], $[1:3], $[*], $..key or $[?(@.key > 1)]"
        )

    def done(self) -> bool:
        return self._at == len(self._text)

    def take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def segments(self) -> tuple[Segment, ...]:
        found: list[Segment] = []
        while True:
            if self.take(".."):
                selectors = self._bracket() if self.take("[") else (self._dotted(),)
                found.append(Segment(selectors, deep=True))
            elif self.take("."):
                found.append(Segment((self._dotted(),)))
            elif self.take("["):
                found.append(Segment(self._bracket()))
            else:
                return tuple(found)

    def _dotted(self) -> Selector:
        if self.take("*"):
            return All()
        name = self._match(_NAME)
        if name is None:
            self.fail("expected the name of a key; write other names as ['name']")
        return Member(name)

    def _bracket(self) -> tuple[Selector, ...]:
        selectors = [self._selector()]
        while self._token(","):
            selectors.append(self._selector())
        if not self._token("]"):
            self.fail('expected "]"')
        return tuple(selectors)

    def _selector(self) -> Selector:
        self._blanks()
        if self.take("*"):
            return All()
        if self.take("?"):
            return Where(self._either())
        if (name := self._quoted()) is not None:
            return Member(name)
        start = self._index()
        if not self._token(":"):
            if start is None:
                self.fail("expected an index from 0 (negative ones are not supported), a key in quotes, * or ?(…)")
            return Element(start)
        stop = self._index()
        step = self._index() if self._token(":") else None
        if step == 0:
            self.fail("expected a step of at least 1")
        return Slice(start or 0, stop, 1 if step is None else step)

    def _either(self) -> Test:
        parts = [self._both()]
        while self._token("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Test:
        parts = [self._single()]
        while self._token("&&"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _single(self) -> Test:
        if self._token("!"):
            return Not(self._single())
        if self._token("("):
            test = self._either()
            if not self._token(")"):
                self.fail('expected ")"')
            return test
        left = self._operand()
        self._blanks()
        operator = self._match(_COMPARISON)
        if operator is not None:
            return Compare(operator, left, self._operand())
        if isinstance(left, Constant):
            self.fail("expected a comparison")
        return Exists(left)

    def _operand(self) -> Path | Constant:
        self._blanks()
        for sign in "@$":
            if self.take(sign):
                return Path(sign == "$", self.segments())
        if (text := self._quoted()) is not None:
            return Constant(text)
        if (word := self._match(_WORD)) is not None:
            return Constant(_WORDS[word])
        if (number := self._match(_NUMBER)) is not None:
            return Constant(orjson.loads(number))
        return self.fail("expected @, $, a number, a text in quotes, true, false or null")

    def _index(self) -> int | None:
        self._blanks()
        digits = self._match(_INDEX)
        return None if digits is None else int(digits)

    def _quoted(self) -> str | None:
        start = self._at
        quoted = self._match(_QUOTED)
        if quoted is None:
            return None
        inner = quoted[1:-1]
        if quoted[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        try:
            return str(orjson.loads(f'"{inner}"'))
        except orjson.JSONDecodeError:
            self._at = start
            self.fail("expected a text in quotes with the escapes of JSON")

    def _token(self, sign: str) -> bool:
        self._blanks()
        return self.take(sign)

    def _blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\n\r":
            self._at += 1

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]
