"""Pages in Markdown, as tests see them: their code, which is run, and their links, which must lead somewhere."""

import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"

# A block of Python, and what it prints, if a block of text stands right below it.
_BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SPACES = re.compile(" {2,}")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code, the line of the page on which it begins, and what it prints."""

    code: str
    line: int
    output: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of Python of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(code=found[1], line=text.count("\n", 0, found.start(1)) + 1, output=found[2] or "")
        for found in _BLOCK.finditer(text)
    ]


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run all blocks of a page, one after the other, as one module that is written to `folder`.

    The module has the code in the lines in which it stands on the page: the source of functions and classes can be
    found, and tracebacks tell the line.

    Raises:
        AssertionError: A block prints something else than the text below it says.
    """
    code = blocks(page)
    name = f"page_{page.stem}"
    path = folder / f"{name}.py"
    lines: list[str] = []
    for block in code:
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, module)
    for block in code:
        with redirect_stdout(StringIO()) as printed:
            exec(compile("\n" * (block.line - 1) + block.code, path, "exec"), vars(module))  # noqa: S102 (our own page)
        found, told = _trimmed(printed.getvalue()), _trimmed(block.output)
        assert found == told, "\n".join([f"{page}, line {block.line} prints:", *found, "but the page says:", *told])
    return module


def _trimmed(output: str) -> list[str]:
    return [line.rstrip() for line in output.strip("\n").splitlines()]


def console_commands(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each command in the console blocks of a page with the output that the page shows."""
    for block in _CONSOLE.finditer(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def matches(printed: str, shown: str) -> bool:
    """Return whether a text matches the page: a line of `…` alone stands for any number of lines.

    The widths of a table's columns depend on their content, so runs of spaces count as two.
    """
    tokens = [_SPACES.sub("  ", line.rstrip()) for line in shown.splitlines()]
    lines = [_SPACES.sub("  ", line.rstrip()) for line in printed.splitlines()]
    pattern = "\n".join(tokens).replace("[", "[[]").replace("*", "[*]").replace("?", "[?]").replace("…", "*")
    return fnmatchcase("\n".join(lines), pattern)


def linked_files(page: Path) -> Iterator[Path]:
    """Yield the files to which a page links."""
    for link in _relative_links(page):
        yield (page.parent / link.partition("#")[0]).resolve() if not link.startswith("#") else page


def dead_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of it."""
    return [
        link
        for link, file in zip(_relative_links(page), linked_files(page), strict=True)
        if not file.exists() or ("#" in link and link.partition("#")[2] not in _anchors(file))
    ]


def _relative_links(page: Path) -> list[str]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
