"""The forms that values from the process of a connector must have."""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import orjson

from caraway.errors import shortened

T_co = TypeVar("T_co", covariant=True)

# An int that fits 64 bits, so that metrics, JSON and Postgres can hold it.
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
# A word for people, such as a unit.
Word = Annotated[str, msgspec.Meta(max_length=40, pattern="^[ -~]*$")]
# A text from a process, such as an error, is shortened to this many characters.
MOST_TEXT = 4_000
# A document from a process may have at most this many bytes. A position, for instance, has some 10 to 100 bytes for
# each partition.
MOST_DOCUMENT = 256 << 10


class Form(Generic[T_co]):
    """A form of values, which is made when its module is imported (`tests/unit/test_decoders.py` says why)."""

    def __init__(self, kind: type[T_co]) -> None:
        """Collect what msgspec has to know of a type."""
        self._kind = kind
        msgspec.msgpack.Decoder(kind)

    def of(self, value: Any) -> T_co:
        """Return a value in this form. Raises `msgspec.ValidationError` if it hasn't got it."""
        return msgspec.convert(value, self._kind)


def document(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of a process as JSON has it; raises `ValueError` if it can't be, or is too long."""
    try:
        content = orjson.dumps(value)
    except TypeError as error:
        raise ValueError(f"a document isn't JSON: {error}") from None
    if len(content) > MOST_DOCUMENT:
        raise ValueError(f"a document has {len(content)} bytes, of at most {MOST_DOCUMENT}")
    found: dict[str, Any] = orjson.loads(content)
    return found


def plain(text: str) -> str:
    """Return a text of a process as all encodings have it, shortened if it is long."""
    return shortened(text, MOST_TEXT).encode("utf-8", "replace").decode()
