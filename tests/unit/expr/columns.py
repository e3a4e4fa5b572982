# Restrictions are values that are used in annotations.
# mypy: disable-error-code="misc, valid-type"
"""Columns of every type, in annotations as users write them."""

from datetime import date, datetime
from typing import Any, Dict, List, Optional

from caraway.dtypes import Decimal, Embedding, between, oneof, regex, struct


@struct
class Dot:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    start: Optional[Dot]
    points: List[Dot]


SMALL = between(int, 0, 9)
RATIO = between(float, 0, 1)
SIZE = oneof(str, ["s", "m"])
GRADE = oneof(int, [1, 2])
CODE = regex("[a-z]+")

SCHEMA: dict[str, Any] = {
    "i": int,
    "oi": Optional[int],
    "f": float,
    "of": Optional[float],
    "b": bool,
    "ob": Optional[bool],
    "s": str,
    "os": Optional[str],
    "t": datetime,
    "ot": Optional[datetime],
    "d": date,
    "od": Optional[date],
    "y": bytes,
    "m": Decimal[2],
    "om": Optional[Decimal[2]],
    "small": SMALL,
    "ratio": RATIO,
    "size": SIZE,
    "grade": GRADE,
    "code": CODE,
    "e": Embedding[3],
    "li": List[int],
    "oli": Optional[List[int]],
    "loi": List[Optional[int]],
    "lf": List[float],
    "lb": List[bool],
    "lob": List[Optional[bool]],
    "ls": List[str],
    "ll": List[List[int]],
    "lsmall": List[SMALL],
    "lp": List[Dot],
    "di": Dict[str, int],
    "odi": Optional[Dict[str, int]],
    "dof": Dict[str, Optional[float]],
    "df": Dict[str, float],
    "p": Dot,
    "op": Optional[Dot],
    "line": Line,
}
