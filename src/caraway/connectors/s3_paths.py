"""The grammar of `path`, which selects the objects of a bucket.

A path is segments with `/` between them: plain ones, `*` (any one segment), `**` (any number), `*.ext` (at the end),
and times, which have a `%` as in the formats of strftime. The plain segments at the beginning are the prefix.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from caraway.errors import DefinitionError

_STATIC = re.compile(r"[A-Za-z0-9._=-]+")
_ANY_WITH_EXTENSION = re.compile(r"\*\.[A-Za-z0-9.]+")


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A parsed path: all keys begin with `prefix`, and the rest matches `suffix`."""

    prefix: str
    suffix: str
    is_temporal: bool


def parse_path(path: str) -> ObjectPath:
    """Parse a path.

    Raises:
        DefinitionError: A segment isn't possible; the text names it and the possible ones.
    """
    segments = path.removesuffix("/").split("/")
    for position, segment in enumerate(segments):
        _check(path, segment, is_last=position == len(segments) - 1)
    fixed = next((i for i, s in enumerate(segments) if "*" in s or "%" in s), len(segments))
    prefix, suffix = "/".join(segments[:fixed]), "/".join(segments[fixed:])
    if prefix and (suffix or path.endswith("/")):
        prefix += "/"
    return ObjectPath(prefix, suffix, is_temporal=any("%" in segment for segment in segments))


def _check(path: str, segment: str, *, is_last: bool) -> None:
    if not segment:
        raise DefinitionError(f"path {path!r} has an empty segment; write it as a/b/c, without / at its beginning")
    if "%" in segment:
        _check_time(path, segment)
    elif "*" in segment:
        if segment not in {"*", "**"} and not (is_last and _ANY_WITH_EXTENSION.fullmatch(segment)):
            raise DefinitionError(
                f"path {path!r}: {segment!r} isn't possible; wildcards are * (one segment), ** (any number) and, "
                "at the end, *.ext"
            )
    elif not _STATIC.fullmatch(segment):
        raise DefinitionError(f"path {path!r}: {segment!r} has other characters than A-Z a-z 0-9 . _ = -")


def _check_time(path: str, segment: str) -> None:
    if "*" in segment:
        raise DefinitionError(f"path {path!r}: {segment!r} mixes a wildcard with a time; put them in two segments")
    try:
        written = datetime.now(UTC).strftime(segment)
        datetime.strptime(written, segment)  # noqa: DTZ007 (only whether it can be read)
    except ValueError as error:
        raise DefinitionError(
            f"path {path!r}: {segment!r} is no time that can be read back, such as %Y-%m-%d: {error}"
        ) from None
