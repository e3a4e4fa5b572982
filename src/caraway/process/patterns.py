"""Regular expressions of definitions. RE2 matches them in time that is linear in the length of the text.

Python's `re` takes exponential time for some patterns, and no other code of the process runs meanwhile; RE2 lets other
threads run ([decision 68](../../docs/decisions/0068-regular-expressions.md)).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from caraway.errors import DefinitionError

# A compiled pattern may have at most this many instructions, and its automaton at most this many bytes. The time to
# match a character grows with the instructions. A pattern for e-mail addresses has some 50, and `.{1,200}` has 1,800.
MAX_INSTRUCTIONS, MAX_MEMORY = 2_000, 1024 * 1024

Matcher = Callable[[str], bool]


def searcher(pattern: str) -> Matcher:
    """Return the function that looks for a pattern anywhere in a text; see `whole` for errors."""
    search = _compiled(pattern).search
    return lambda text: search(text.encode()) is not None


def whole(pattern: str) -> Matcher:
    """Return the function that returns whether a text matches a pattern from its beginning to its end.

    Raises `DefinitionError` if the pattern is no regular expression of RE2, or too large.
    """
    match = _compiled(pattern).fullmatch
    return lambda text: match(text.encode()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = MAX_MEMORY, True, False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else str(error)
        raise DefinitionError(
            f"the pattern {pattern[:200]!r} isn't a regular expression of RE2: {reason}. Write it without look-around, "
            "back-references and possessive quantifiers, \\z for \\Z, and counts of at most 1,000"
        ) from None
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise DefinitionError(
            f"the pattern {pattern[:200]!r} is too large: it has {compiled.programsize:,} instructions once compiled, "
            f"at most {MAX_INSTRUCTIONS:,} are possible. Use * and + for large counts, or check the length by itself"
        )
    return compiled
