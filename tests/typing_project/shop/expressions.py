"""Expressions, everything annotated."""

from typing import List, Optional

import pandas as pd

from caraway.dtypes import Decimal, Embedding
from caraway.expr import (
    DatetimeExpr,
    EvalContext,
    Expr,
    ListExpr,
    NumberExpr,
    StringExpr,
    TypedExpr,
    col,
    datetime,
    from_epoch,
    lit,
    make_struct,
    now,
    repeat,
    var,
    when,
)
from shop.definitions import Address, Place

arithmetic: Expr = (col("a") + 1) * 2.5 - col("b") // 2 + 3 / col("c") % 4 - 1
reverse: Expr = 1 + col("a") - (2 - col("b")) * (3 * col("c"))
compared: Expr = (col("a") == 1) & (col("b") != "x") | ~(col("c") >= col("d"))
negative: Expr = -col("a")
indexed: Expr = col("list")[0] + col("dict")["key"]
chosen: Expr = when(col("stars").isnull()).then(lit("none")).when(col("stars") >= 4).then("good").otherwise("poor")
open_ended: Expr = when(col("a") > 1).then(col("a"))
typed: TypedExpr = chosen.astype(str)
optional: TypedExpr = open_ended.astype(Optional[int])

number: NumberExpr = col("a").num.sqrt().num.pow(2).abs().round(2).floor()
words: StringExpr = col("a").str.lower().upper().str.concat(col("b")).str.concat("!")
letters: NumberExpr = words.str.len()
found: Expr = words.contains("a") & words.startswith(col("x")) & col("b").str.endswith("z")
parts: ListExpr = words.split(",")
parsed: Expr = col("json").str.parse(List[int])
instant: DatetimeExpr = col("text").str.strptime("%Y-%m-%d", timezone="Europe/Berlin")
hours: NumberExpr = now().dt.since(instant.with_tz("UTC"), unit="hour")
year: NumberExpr = datetime(2024, 1, 2, hour=3, timezone="UTC").year
moment: DatetimeExpr = from_epoch(col("seconds"), unit="second")
spelled: StringExpr = moment.strftime("%Y")
elements: ListExpr = col("list").list.map("x", var("x") + 1).list.filter("x", var("x") > 2)
total: NumberExpr = elements.list.sum()
first: Expr = elements.at(0)
there: Expr = col("d").dict.contains("k") & (col("d").dict.get("k", default=0) > col("d").dict.len())
street: Expr = col("address").struct.get("street")
many: ListExpr = repeat("x", 3)

made = make_struct({"street": col("s"), "zip_code": lit("12345")}, Address)
also_made = Place.expr(latitude=col("x"), longitude=0.0).astype(Place)
zipped = Place.zip(latitude=col("xs"), longitude=col("ys"))
document = Place(1.0, 2.0).as_json()

rows: "pd.Series[float]" = (col("a") * 2).eval(
    pd.DataFrame({"a": [1.0]}), schema={"a": float}, output_dtype=float, context=EvalContext(now_col_name=None)
)
kind = (col("a") + 1).typeof({"a": int})
prices = [col("price").astype(Decimal[2]), lit([1.0, 2.0], type=Embedding[2])]
fits: bool = (col("a") + 1).matches_type(int, {"a": int})
