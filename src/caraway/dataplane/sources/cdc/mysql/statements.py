"""The meaning that a statement in the binary log has for one table: rows are logged as rows, all else as statements."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

_TOKEN = re.compile(
    r"""
    (?P<blank> \s+ | /\*(?![!M]) .*? \*/ | /\*M(?!!) .*? \*/ | (?:--(?=\s|$)|\#)[^\n]*
        | /\*M?!\d* | \*/ )                                             # the content of /*! ... */ is executed
    | `(?P<quoted>(?:[^`]|``)+)`
    | (?P<text>'(?:[^'\\]|''|\\.)*')
    | "(?P<ansi>(?:[^"\\]|""|\\.)*)"
    | (?P<word>[\w$]+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# At most this many characters of a statement are parsed. The verb and the first names are at the beginning; the rest of
# a longer statement is values, or the partitions of a table.
MOST = 100_000


class Effect(Enum):
    """The effect that a statement has on a table."""

    NOTHING = auto()
    #: All rows are removed.
    EMPTIES = auto()
    #: Columns are added, removed or changed. Rows stay.
    ALTERS = auto()
    #: Rows of the table change, and the log doesn't have these rows.
    REPLACES = auto()


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table; `folds_case` is true if the server doesn't tell names by their case."""

    schema: str
    table: str
    folds_case: bool = False

    def matches(self, schema: str, table: str) -> bool:
        """Return whether the name is that of this table."""
        if self.folds_case:
            return (schema.casefold(), table.casefold()) == (self.schema.casefold(), self.table.casefold())
        return (schema, table) == (self.schema, self.table)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool

    @property
    def word(self) -> str:
        """The word in upper case; empty for a quoted name."""
        return "" if self.is_name else self.text.upper()


def effect(statement: str, default_schema: str, name: TableName) -> Effect:
    """Return what a statement does to a table.

    Args:
        statement: The statement, as the log has it.
        default_schema: The database in which it ran.
        name: The table.
    """
    tokens = list(_tokens(statement[:MOST]))
    words = [token.word for token in tokens[:8]]
    verb = words[0] if words else ""
    rest = tokens[1:]
    match verb:
        case "TRUNCATE":
            found = _names(_without(rest, "TABLE"), default_schema)
            return Effect.EMPTIES if any(name.matches(*each) for each in found[:1]) else Effect.NOTHING
        case "DROP" | "CREATE" if {"DATABASE", "SCHEMA"} & set(words[1:4]):
            dropped = _without(rest, "DATABASE", "SCHEMA", "IF", "EXISTS")
            is_ours = verb == "DROP" and dropped and name.matches(dropped[0].text, name.table)
            return Effect.EMPTIES if is_ours else Effect.NOTHING
        case "DROP" if "TEMPORARY" not in words and "TABLE" in words[1:3]:
            found = _names(_without(rest, "TABLE", "TABLES", "IF", "EXISTS"), default_schema)
            return Effect.EMPTIES if any(name.matches(*each) for each in found) else Effect.NOTHING
        case "CREATE" if "TEMPORARY" not in words and "TABLE" in words[1:4]:
            # With OR REPLACE, the rows of the new table follow in the log. With IF NOT EXISTS, the statement may do
            # nothing.
            found = _names(_without(rest, "OR", "REPLACE", "TABLE", "IF", "NOT", "EXISTS"), default_schema)
            if not found or not name.matches(*found[0]):
                return Effect.NOTHING
            return Effect.EMPTIES if "OR" in words else Effect.ALTERS
        case "RENAME":
            pairs = _without(rest, "TABLE", "TABLES", "IF", "EXISTS")
            found = [each for part in _split(pairs, ",", "TO") for each in _names(part, default_schema)[:1]]
            return Effect.REPLACES if any(name.matches(*each) for each in found) else Effect.NOTHING
        case "ALTER" if "TABLE" in words[1:4]:
            return _alter(_without(rest, "ONLINE", "OFFLINE", "IGNORE", "TABLE", "IF", "EXISTS"), default_schema, name)
        case "INSERT" | "REPLACE" | "UPDATE" | "DELETE" | "LOAD":
            # Rows are logged as such a statement only if a session wrote with binlog_format=STATEMENT. INSERT and
            # REPLACE change the table that follows the verb. The others are refused if they name the table anywhere,
            # even if they only read it.
            into = _without(rest, "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM")
            if verb in {"INSERT", "REPLACE"}:
                is_ours = any(name.matches(*each) for each in _names(into, default_schema)[:1])
            else:
                is_ours = any(name.matches(name.schema, token.text) for token in tokens)
            return Effect.REPLACES if is_ours else Effect.NOTHING
    return Effect.NOTHING


def _alter(tokens: list[_Token], default_schema: str, name: TableName) -> Effect:
    altered = _names(tokens[:3], default_schema)[:1]
    words = [token.word for token in tokens]
    # Further tables that the statement names: the table of EXCHANGE PARTITION ... WITH TABLE, and the new name after
    # RENAME [TO].
    others = []
    for at, word in enumerate(words):
        if word == "WITH" and words[at + 1 : at + 2] == ["TABLE"] and "EXCHANGE" in words:
            others += _names(tokens[at + 2 : at + 5], default_schema)[:1]
        if word == "RENAME" and words[at + 1 : at + 2] not in (["COLUMN"], ["INDEX"], ["KEY"]):
            others += _names(_without(tokens[at + 1 :], "TO", "AS")[:3], default_schema)[:1]
    if any(name.matches(*each) for each in others):
        return Effect.REPLACES
    if not altered or not name.matches(*altered[0]):
        return Effect.NOTHING
    pairs = set(pairwise(words))
    swaps = {(verb, "PARTITION") for verb in ("TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT")}
    swaps |= {("DISCARD", "TABLESPACE"), ("IMPORT", "TABLESPACE")}
    return Effect.REPLACES if others or swaps & pairs else Effect.ALTERS


def _tokens(statement: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(statement):
        match found.lastgroup:
            case "quoted":
                yield _Token(found["quoted"].replace("``", "`"), is_name=True)
            case "ansi":
                yield _Token(found["ansi"].replace('""', '"'), is_name=True)
            case "word" | "mark" | "text":
                yield _Token(found[0], is_name=False)


def _without(tokens: list[_Token], *words: str) -> list[_Token]:
    """Return tokens without those words at the beginning."""
    at = 0
    while at < len(tokens) and tokens[at].word in words:
        at += 1
    return tokens[at:]


def _split(tokens: list[_Token], *marks: str) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in tokens:
        if token.word in marks:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _names(tokens: list[_Token], default_schema: str) -> list[tuple[str, str]]:
    """Return the schema and the table of each of the names that are separated by commas at the beginning."""
    found = []
    for part in _split(tokens, ","):
        names = [token.text for token in part[:3]]
        if len(names) > 2 and names[1] == "." and part[1].word == ".":
            found.append((names[0], names[2]))
        elif names:
            found.append((default_schema, names[0]))
    return found
