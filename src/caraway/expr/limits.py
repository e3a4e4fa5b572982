"""Bounds on the results of expressions: without them, a few bytes of a definition could make values of any size."""

from caraway.errors import InvalidInputError

# `repeat` repeats a value at most this many times. Several `repeat` within one list multiply their counts, so the
# product is limited, too. Embeddings have a few thousand numbers.
MAX_REPEATED, MAX_REPEATED_TOGETHER = 10_000, 1_000_000
# `concat` makes texts of at most this many characters, about as many as a record may have bytes.
MAX_CHARACTERS = 1_000_000


def check_count(times: int) -> None:
    """Raise `InvalidInputError` if a value can't be repeated this number of times."""
    if times < 0:
        raise InvalidInputError(f"repeat(): the count {times} is negative")
    if times > MAX_REPEATED:
        raise InvalidInputError(f"repeat(): the count is {times:,}, at most {MAX_REPEATED:,} are possible")


def check_characters(found: int) -> None:
    """Raise `InvalidInputError` if a text has more characters than allowed."""
    if found > MAX_CHARACTERS:
        raise InvalidInputError(f"concat(): the text has {found:,} characters, at most {MAX_CHARACTERS:,} are possible")
