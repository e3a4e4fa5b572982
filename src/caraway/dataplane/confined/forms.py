"""The forms that values from the process of a connector must have."""

from typing import Any, Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)


class Form(Generic[T_co]):
    """A form of values, which is made when its module is imported (`tests/unit/test_decoders.py` says why)."""

    def __init__(self, kind: type[T_co]) -> None:
        """Collect what msgspec has to know of a type."""
        self._kind = kind
        msgspec.msgpack.Decoder(kind)

    def of(self, value: Any) -> T_co:
        """Return a value in this form. Raises `msgspec.ValidationError` if it hasn't got it."""
        return msgspec.convert(value, self._kind)
