"""Words that the glossary has replaced don't come back, neither in names nor in prose."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = (".java", ".md", ".py")
FOLDERS = ("bench", "docs", "jvm", "src", "tests")
# The glossary lists the former words, this file too, and migrations are never edited once they have been released.
LEFT_OUT = ("docs/learn/glossary.md", "src/caraway/state/migrations/", "tests/docs/test_words.py")


@dataclass(frozen=True, slots=True)
class Former:
    """A word that is gone.

    Attributes:
        word: A regular expression of the word, which is looked for in lower case, between anything but letters.
        now: The words to write in its place.
        kept: Regular expressions of texts in which the word stays, because it is on disk, on the wire or of others.
        under: The folders in which the word is looked for; in others it has another meaning.
    """

    word: str
    now: str
    kept: tuple[str, ...] = ()
    under: tuple[str, ...] = FOLDERS


INDEX = ("src/caraway/dataplane/index", "tests/unit/dataplane/index", "tests/unit/dataplane/index/sharding")
SPARK = (
    "jvm",
    "src/caraway/dataplane/streams/spark",
    "src/caraway/dataplane/streams/functions",
    "tests/unit/dataplane/streams/spark",
)
PARTITIONS = ("src/caraway/dataplane/index/sharding",)
CONTROL = tuple(
    f"{root}{part}"
    for root in ("src/caraway/", "tests/unit/", "tests/integration/")
    for part in ("state", "control", "engine/", "erasure", "secrets", "served", "server", "sharding")
)

FORMER = (
    # A key in RocksDB and a column of Postgres.
    Former("frontiers?", "max event time", kept=('b"frontier"', r"\bfrontier_us\b")),
    # A kind of topic is in plans that are stored; tests name topics so.
    Former("contributions?", "aggregate input", kept=('"contributions"', r'f"contributions\.')),
    # Java's word for a function without a result, and the type of C's pointers.
    Former("void(?:s|ed)?", "retraction", kept=(r"\bvoid \w+\(", "c_void_p"), under=(*FOLDERS[:2], *SPARK, *INDEX)),
    Former("descents?", "range query", kept=("recursive descent",)),
    Former("lost runs?", "failed attempt"),
    Former("stretch(?:es)?", "interval"),
    # The file of the shared counters.
    Former(
        "boards?",
        "shared counters",
        kept=(r"\.board\b", "keyboard", "dashboard"),
        under=("src/caraway/dataplane/index",),
    ),
    Former("outlets?", "writer of emissions", under=INDEX),
    Former("stale groups?|make stale", "dirty group"),
    Former(
        "turns",
        "change points",
        kept=("returns", r"# Turns signed", "turns out"),
        under=("src/caraway/dataplane/index",),
    ),
    Former("neighbours?", "adjacent row", under=(*SPARK, *INDEX)),
    Former("followers?", "fan-out of versions", under=("jvm",)),
    Former("news", "fan-out of versions", under=SPARK),
    Former("passengers?|riding|parked", "pass-through row or column", under=SPARK),
    Former("(?:read|compute|evaluate|take|start) soon|soon reader", "async"),
    Former("holders?", "shard owner", under=(*PARTITIONS, *INDEX)),
    Former("doors?", "shard server", kept=("test_open_doors",), under=(*PARTITIONS, *SPARK, "docs")),
    Former("spans?", "interval", kept=("that they span",), under=INDEX),
    Former("(?:is|are|isn't|until|when|been) level", "caught up"),
    Former(
        "places?", "location, position", kept=(r"(?:in|in its|in the|in one|its) places?\b",), under=("jvm", INDEX[0])
    ),
    Former("hiding (?:reader|index)", "erasure filter"),
    Former("unlike", "older than", under=INDEX),
    Former("banks?", "asset store", under=CONTROL),
    Former("allotments?|allots?|allotted", "allocation"),
    # A column of Postgres, a field of the HTTP API, and the client's name of this field.
    Former(
        "deeds?",
        "action",
        kept=(
            r"\bledger\.c\.deed\b",
            r"\b(?:row|self)\.deed\b",
            '"deed"',
            "`deed`",
            r"\bdeed: ",
            "ledger_deed_known",
            "deed IN",
        ),
    ),
    Former(r"incarnat\w+", "generation"),
    Former("tenures?|tenanc(?:y|ies)", "job ownership"),
    # A table of Postgres.
    Former(
        "standings?",
        "branch heads, shard progress",
        kept=(r"\bindex_standings\b",),
        under=(
            "src/caraway/state",
            "src/caraway/apps/server/control",
            "src/caraway/dataplane/streams/engine/",
            *PARTITIONS,
        ),
    ),
    Former("tend(?:s|ed)?", "reconcile"),
    Former("(?:make|require) lives?|live of", "served graph"),
    Former("secret (?:books?|uses?)", "secret store, secret reference"),
    Former("patience|patiently", "timeout", kept=("CARAWAY_TEST_PATIENCE",)),
    # A column of Postgres.
    Former(
        "level",
        "caught up",
        kept=('"level"', "isolation_level"),
        under=(
            "src/caraway/state",
            "src/caraway/state/ownership",
            "src/caraway/apps/server/control",
            "docs/operate/control.md",
        ),
    ),
    Former(
        "holders?",
        "owner",
        kept=(r"\bleases\.c\.holder\b", '"holder"', r"\bholder="),
        under=(
            "src/caraway/state",
            "src/caraway/state/ownership",
            "src/caraway/apps/server/control",
            "src/caraway/dataplane/streams/engine/",
        ),
    ),
    Former("feast door", "Feast endpoint"),
)


@cache
def texts() -> dict[str, str]:
    """Return the texts of all files by their paths."""
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files if path.is_file()}
    return {path: text for path, text in found.items() if not path.startswith(LEFT_OUT)}


@cache
def words_of(text: str) -> str:
    """Return a text in lower case, with the parts of names as words of their own."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).replace("_", " ").lower()


def found(former: Former, files: dict[str, str]) -> Iterator[str]:
    """Yield the lines that have the word, with their paths."""
    word = re.compile(rf"(?<![a-z])(?:{former.word})(?![a-z])")
    for path, text in files.items():
        if not path.startswith(former.under):
            continue
        if not word.search(words_of(path)) and not word.search(words_of(text)):
            continue
        if word.search(words_of(path)):
            yield path
        for number, line in enumerate(text.splitlines(), 1):
            rest = line
            for kept in former.kept:
                rest = re.sub(kept, "", rest, flags=re.IGNORECASE)
            if word.search(words_of(rest)):
                yield f"{path}:{number}: {line.strip()}"


@pytest.mark.parametrize("former", FORMER, ids=lambda former: former.now)
def test_a_former_word_is_gone(former: Former) -> None:
    assert list(found(former, texts())) == [], f"write: {former.now} (docs/learn/glossary.md)"


@pytest.mark.parametrize(
    "text", ["the frontier moves", "max_frontier_us = 1", "class FrontierKeeper:", "self._frontier", "leftFrontier"]
)
def test_words_are_found_in_prose_and_in_names(text: str) -> None:
    assert list(found(FORMER[0], {"src/a.py": text}))
