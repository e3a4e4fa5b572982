"""Conversions of text and of bytes."""

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from caraway.dtypes.types import BytesType, StringType
from caraway.dtypes.values import CONVERSIONS, Conversions, is_null, mismatch


def _str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer, Decimal)):
        return str(value)
    if isinstance(value, (float, np.floating)) and not is_null(value):
        return repr(float(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise mismatch("str", value) from None
    raise mismatch("str", value)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, int, np.integer, float, np.floating, Decimal)):
        raise mismatch("str", value)
    return _str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and value.keys() == {"base64"}:
        # JSON requests have bytes in this form: {"base64": "..."}.
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise mismatch("bytes", value) from None
    raise mismatch("bytes", value)


CONVERSIONS[StringType] = Conversions(
    written="str",
    cast=lambda _, manner: _text if manner.strict_text else _str,
    conforms=lambda value, _, __: isinstance(value, str),
    arrow=lambda _: pa.string(),
    python=(str, np.str_),
    pandas=(pd.StringDtype,),
    taken_from=lambda kind: kind in {"object", "str", "string"} or kind.endswith("string[pyarrow]"),
    strict=False,
)
CONVERSIONS[BytesType] = Conversions(
    written="bytes",
    cast=lambda _, __: _bytes,
    conforms=lambda value, _, __: isinstance(value, bytes),
    arrow=lambda _: pa.binary(),
    python=(bytes, np.bytes_),
    to_json=lambda _: lambda value: base64.b64encode(value).decode(),
    from_json=lambda _: base64.b64decode,
    taken_from=lambda kind: kind == "object" or "binary" in kind,
)
