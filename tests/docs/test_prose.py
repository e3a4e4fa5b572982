"""Sentences of comments, docstrings and pages name their subject first (CONTRIBUTING.md, "Write plain English")."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "jvm", "src", "tests")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

# No sentence opens with one of these, since its reader would have to wait for its subject. Questions may.
RIDDLES = ("Of", "What", "Who", "Whoever", "Whose", "Whom", "Else", "Where", "Whether", "Which")
# No comment or docstring opens with one of these: a function returns, reads or checks.
FIGURES = ("Tell", "Tells", "Give", "Gives", "Let", "Lets", "Say", "Says", "Name", "Names")

# Quotes, brackets and emphasis may stand before a sentence, and emphasis between it and the one before.
_BEFORE = r"(?:^|(?<=[.:;!?] )|(?<=[.:;!?]\* )|(?<=[.:;!?]\*\* ))[(\"'*_]*"
_RIDDLE = re.compile(rf"{_BEFORE}(?P<opening>{'|'.join(RIDDLES)})\b")
_FIGURE = re.compile(rf"(?P<opening>{'|'.join(FIGURES)})\b")
_CANDIDATE = re.compile(rf"\b(?:{'|'.join(RIDDLES + FIGURES)})\b")
_END = re.compile(r"[.!?](?=[)\"'*_]*(?: |$))")
_PRAGMA = re.compile(r"(?:noqa|type:|mypy:|ruff:|pragma:)")

# Texts of Java stay, in which `//` is no comment; so do characters.
_OF_JAVA = re.compile(
    r"(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|/\*(?P<block>.*?)\*/|(?P<lines>//[^\n]*(?:\n[ \t]*//[^\n]*)*)",
    re.DOTALL,
)
_MARGIN = re.compile(r"^[ \t]*(?:\*|//+)+[ \t]?|<p>", re.MULTILINE)

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NO_PROSE = re.compile(r"^[|#<].*$", re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[*-]|\d+\.)\s+", re.MULTILINE)


def riddles(text: str) -> Iterator[str]:
    """Yield the beginnings of those sentences of a text that open with a riddle and are no questions."""
    flat = " ".join(text.split())
    for found in _RIDDLE.finditer(flat):
        end = _END.search(flat, found.end())
        if end is None or end[0] != "?":
            yield flat[found.start("opening") :][:80]


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes and functions, and the texts below attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, cleandoc(node.value.value)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield blocks of comments with the line of their beginning; one behind code is a block of its own."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text, line = token.string.lstrip("#:").strip(), token.start[0]
        alone = token.line.strip().startswith("#")
        if block and not (alone and line == last + 1):
            yield first, " ".join(block)
            block = []
        if not block:
            first = line
        block.append(text)
        last = line if alone else 0
    if block:
        yield first, " ".join(block)


def _of_java(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Java file with the line of their beginning."""
    for found in _OF_JAVA.finditer(source):
        if found["text"] is None:
            text = _MARGIN.sub("", found["block"] or found["lines"]).strip()
            yield source.count("\n", 0, found.start()) + 1, text


def of_source(source: str, *, java: bool = False) -> Iterator[str]:
    """Yield the sentences of a file's comments and docstrings that open badly, with their lines."""
    if not _CANDIDATE.search(source):
        # Most files have none of the words, and need not be parsed.
        return
    for line, text in _of_java(source) if java else (*_docstrings(source), *_comments(source)):
        if _PRAGMA.match(text):
            continue
        if _FIGURE.match(text):
            yield f"{line}: {text[:80]}"
        yield from (f"{line}: {sentence}" for sentence in riddles(text))


def of_page(text: str) -> Iterator[str]:
    """Yield the sentences of a page that open badly; code, tables and headings are no prose."""
    prose = _ITEM.sub("\n\n", _NO_PROSE.sub("\n", _FENCED.sub("\n", text)))
    for paragraph in re.split(r"\n\s*\n", prose):
        yield from riddles(paragraph)


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings_name_their_subject(folder: str) -> None:
    files = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".java", ".py"}]
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{it}"
        for path in files
        if not path.name.endswith("_pb2.py")
        for it in of_source(path.read_text(), java=path.suffix == ".java")
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_of_a_page_name_their_subject(page: Path) -> None:
    assert list(of_page(page.read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "Of a way back nothing may stand in the way.",
        "The first one. What it says, holds.",
        "The first one: Whether it holds isn't known.",
        "*Who* asks does so again.",
        "**Limits.** Where it ends isn't known.",
        "* an item\n* Else nothing.",
        "1. Which one it is.",
    ],
)
def test_riddles_are_found(text: str) -> None:
    assert len(list(of_page(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "What takes the time, and what helps?",
        "# What it is\n\nA page.",
        "| Of | Which |",
        "```python\n# Of\n```",
        "An end of it, whether or not it holds.",
        "One *Of* them.",
        "Whenever it holds.",
    ],
)
def test_questions_headings_tables_and_code_are_left_alone(text: str) -> None:
    assert list(of_page(text)) == []


def test_comments_and_docstrings_are_found_with_their_lines() -> None:
    source = '"""Tell it."""\n\nx = 1  # Of no use.\n# A block\n# of two lines. What it says.\ny = "Which"\n'
    assert list(of_source(source)) == ["1: Tell it.", "3: Of no use.", "4: What it says."]


def test_comments_of_java_are_found_with_their_lines() -> None:
    source = 'a = "// Of"; // Tell it.\n/**\n * A row.\n *\n * <p>What it says.\n */\n// Two\n// lines. Else none.\n'
    assert list(of_source(source, java=True)) == ["1: Tell it.", "2: What it says.", "7: Else none."]
