"""The pieces of `just full`: long tests that can be run, and repeated, one by one (docs/inside/ci.md).

    just full                 all pieces
    just full NAME ...        some of them
    just full --changed       those that haven't passed for the sources, tests and locked packages that are here now
    just full --list          what each piece guards, and when it passed

`tests/pieces.toml` has the pieces, and `tests/passed.json` the digest of all that a piece names, from when it passed
last. Only a piece that has passed whole is written down.
"""

import argparse
import datetime as dt
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIECES, PASSED = ROOT / "tests" / "pieces.toml", ROOT / "tests" / "passed.json"
# The tests of all pieces depend on these.
COMMON = ("tests/*.py", "tests/services", "tests/integration/*.py")
# A module of tests that another one imports.
IMPORTED = re.compile(r"^ *(?:from|import) (tests\.[\w.]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some long tests, what they guard, and all on which it depends whether they pass.

    Attributes:
        name: The name by which it is run.
        guards: A sentence for somebody who wonders whether to run it.
        run: The commands, each as words; the first word is a recipe of the justfile, or `pytest`.
        sources: Files, folders and patterns, relative to the root.
        packages: Locked packages of Python, beside those on which all tests depend.
    """

    name: str
    guards: str
    run: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    packages: tuple[str, ...] = ()

    def tests(self) -> list[str]:
        """Return the files and folders of tests that pytest gets."""
        return [word for command in self.run if command[0] == "pytest" for word in command if word.startswith("tests/")]

    def digest(self) -> str:
        """Return a digest of all that the piece names, as it is now."""
        found = hashlib.blake2b(digest_size=16)
        for path in with_helpers(files([*self.sources, *self.tests(), *COMMON])):
            found.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.blake2b(without_comments(path)).digest())
        for package in sorted(self.packages):
            found.update(f"{package}=={locked()[package]}\0".encode())
        return found.hexdigest()

    def commands(self) -> Iterator[list[str]]:
        """Yield the command lines."""
        for recipe, *words in self.run:
            if recipe == "pytest":
                spread = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "--durations=20"]
                yield [sys.executable, "-m", "pytest", *([] if "-n" in words else spread), *words]
            else:
                yield [str(ROOT / ".venv" / "bin" / "just"), recipe, *words]


@dataclass(kw_only=True)
class Passed:
    """The digests of the pieces that have passed, with the day and the minutes that each took."""

    found: dict[str, dict[str, object]] = field(default_factory=dict)

    @staticmethod
    def read() -> "Passed":
        """Read the file."""
        return Passed(found=json.loads(PASSED.read_text()) if PASSED.exists() else {})

    def has(self, piece: Piece) -> bool:
        """Return whether a piece has passed for what is here now."""
        return self.found.get(piece.name, {}).get("digest") == piece.digest()

    def write(self, piece: Piece, digest: str, seconds: float) -> None:
        """Note in the file that a piece has passed."""
        day = dt.datetime.now(dt.UTC).date().isoformat()
        # Another run may have written meanwhile.
        self.found = Passed.read().found | {
            piece.name: {"digest": digest, "on": day, "minutes": round(seconds / 60, 1)}
        }
        PASSED.write_text(json.dumps(self.found, indent=2, sort_keys=True) + "\n")


def files(patterns: Sequence[str]) -> list[Path]:
    """Return the files of the repository that patterns name, in order."""
    found: set[Path] = set()
    for pattern in patterns:
        matched = [ROOT / pattern] if (ROOT / pattern).exists() else sorted(ROOT.glob(pattern))
        if not matched:
            raise ValueError(f"{PIECES.relative_to(ROOT)}: {pattern} names no file")
        for path in matched:
            found.update(path.rglob("*") if path.is_dir() else [path])
    # The READMEs of rooms are for people, and no test depends on this file.
    return sorted(
        path
        for path in found
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md" and path != Path(__file__)
    )


def with_helpers(paths: Sequence[Path]) -> list[Path]:
    """Return files in order, and the modules of tests that they import, as do these."""
    found, left = set(paths), list(paths)
    while left:
        path = left.pop()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests"):
            for name in IMPORTED.findall(path.read_text()):
                module = ROOT / f"{name.replace('.', '/')}.py"
                if module not in found and module.exists() and module != Path(__file__):
                    found.add(module)
                    left.append(module)
    return sorted(found)


def without_comments(path: Path) -> bytes:
    """Return the content of a file; of Python without the lines that are only a comment, which no test can notice.

    Such a line of a text in the code, as of a file that `caraway init` writes, is left out as well.
    """
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    return b"\n".join(line for line in content.split(b"\n") if not line.lstrip().startswith(b"#"))


@cache
def locked() -> dict[str, str]:
    """Return the locked versions of packages."""
    return {
        package["name"]: package.get("version", "")
        for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    }


def pieces() -> list[Piece]:
    """Return all pieces, in their order."""
    return [
        Piece(
            name=name,
            guards=given["guards"],
            run=tuple(tuple(shlex.split(line)) for line in given["run"]),
            sources=tuple(given["sources"]),
            packages=tuple(given.get("packages", ())),
        )
        for name, given in tomllib.loads(PIECES.read_text()).items()
    ]


def say(line: str) -> None:
    """Print a line at once, since the tests that follow print by themselves."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(piece: Piece) -> bool:
    """Run a piece; return whether it has passed."""
    say(f"\n== {piece.name}: {piece.guards}")
    # An edit of a source while the tests run isn't covered by them.
    digest, begun = piece.digest(), time.monotonic()
    environment = {**os.environ, "CARAWAY_TESTS": "full"}
    codes = [subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode for command in piece.commands()]
    seconds = time.monotonic() - begun
    say(f"== {piece.name}: {'failed' if any(codes) else 'passed'} after {seconds / 60:.1f} min")
    if any(codes):
        return False
    Passed.read().write(piece, digest, seconds)
    return True


def show(all_pieces: Sequence[Piece]) -> None:
    """Print what each piece guards, and whether it has passed for what is here."""
    passed = Passed.read()
    for piece in all_pieces:
        last = passed.found.get(piece.name)
        when = f"on {last['on']}, {last['minutes']} min" if last else "never"
        say(f"{piece.name:12} passed {when}{'' if passed.has(piece) else '; to be run'}\n{'':13}{piece.guards}")


def main(words: Sequence[str]) -> int:
    """Do what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="just full", description="Run long tests, in pieces (docs/inside/ci.md).")
    parser.add_argument("names", nargs="*", help="pieces; all by default")
    parser.add_argument("--changed", action="store_true", help="leave out what has passed for the present sources")
    parser.add_argument("--list", action="store_true", help="run nothing; print the pieces")
    parser.add_argument("--left", action="store_true", help="run nothing; print the names of what is to be run")
    given = parser.parse_args(words)
    known = {piece.name: piece for piece in pieces()}
    if unknown := set(given.names) - set(known):
        parser.error(f"there is no piece {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or list(known.values())
    if given.list:
        show(chosen)
        return 0
    if given.changed or given.left:
        passed = Passed.read()
        chosen = [piece for piece in chosen if not passed.has(piece)]
    if given.left:
        names = ", ".join(piece.name for piece in chosen)
        say(f"Pieces of `just full` that haven't passed for these sources: {names or 'none'}")
        return 0
    failed = [piece.name for piece in chosen if not run(piece)]
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
