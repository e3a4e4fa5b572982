"""Bounds on the answers of tools, since an agent pays for each character and forgets what is too long."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from caraway.errors import TooLargeError

# The most bytes of JSON in an answer: some 12,000 tokens of a language model.
MAX_BYTES: Final = 48_000
# The most rows that a tool accepts or returns.
MAX_ROWS: Final = 100


def fitting(answer: Any, remedy: str) -> Any:
    """Return an answer unchanged if it isn't too large.

    Raises `TooLargeError` with the remedy, such as a narrower question, if it is.
    """
    size = len(orjson.dumps(answer, default=str, option=orjson.OPT_NON_STR_KEYS))
    if size > MAX_BYTES:
        raise TooLargeError(f"the answer would have {size:,} bytes, and an answer has at most {MAX_BYTES:,}; {remedy}")
    return answer


def first_of(items: Sequence[Any], limit: int, name: str) -> dict[str, Any]:
    """Return the first items that fit into an answer under a name, and how many more there are under `more`.

    Args:
        items: The items.
        limit: The most items.
        name: The member of the answer that has the items.
    """
    size = 0
    shown: list[Any] = []
    for item in items[:limit]:
        size += len(orjson.dumps(item, default=str, option=orjson.OPT_NON_STR_KEYS)) + 1
        if size > MAX_BYTES and shown:
            break
        shown.append(item)
    return {name: shown, "more": len(items) - len(shown)}


def check_rows(rows: Sequence[Any], tool: str) -> None:
    """Raise `TooLargeError` if there are more rows than a tool takes."""
    if len(rows) > MAX_ROWS:
        raise TooLargeError(
            f"{tool} takes at most {MAX_ROWS} rows, not {len(rows):,}; a training set of many rows is made by "
            "Client.training_set in a program"
        )
