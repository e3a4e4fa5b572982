"""Tests of mistakes in the operators of pipelines: their exceptions, and the facts in the messages."""

# Type checkers see classes where decorators make datasets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, call-arg, union-attr"
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from caraway.datasets import Count, ExpDecaySum, Sum
from caraway.dtypes import Continuous, Hopping, Session, Tumbling
from caraway.expr import col, lit, now
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, Visits, total
from tests.unit.refusals import ROW, check, mistakes_of

mistake = mistakes_of("datasets")

KEY_IN_SCHEMA = {"user": int, "since": datetime}


@pytest.mark.parametrize(
    ROW,
    [
        # 7: column lists
        mistake(lambda: Users.select("user", columns=["user"]), ValueError, "select|both"),
        mistake(lambda: Users.drop("town", columns=["town"]), ValueError, "drop|both"),
        mistake(lambda: Users.dropnull("town", columns=["town"]), ValueError, "dropnull|both"),
        mistake(lambda: Visits.explode("tags", columns=["tags"]), ValueError, "explode|both"),
        mistake(lambda: Users.select(), ValueError, "select|at least one"),
        mistake(lambda: Users.drop(), ValueError, "drop|at least one"),
        mistake(lambda: Visits.explode(), ValueError, "explode|at least one"),
        mistake(lambda: Users.drop(3), ValueError, "drop|int 3"),
        mistake(lambda: Users.drop(columns="town"), ValueError, "drop|list|town"),
        # 7.1
        mistake(lambda: Orders.filter(col("count") > 1), TypeError, "filter|Optional[bool]|fillnull", "types:15:1"),
        mistake(lambda: Orders.filter(col("price")), TypeError, "filter|float"),
        mistake(lambda: Orders.filter(lit(None)), TypeError, "filter|null"),
        mistake(lambda: Orders.filter(col("gone") > 1), ValueError, "filter|gone|price"),
        mistake(lambda: Orders.filter((col("price") > 1).astype(bool)), ValueError, "filter|astype"),
        mistake(lambda: Orders.filter("price > 1"), ValueError, "filter|str"),
        mistake(lambda: Users.filter(col("since") < now()), ValueError, "filter|now()|use since|NOW()"),
        mistake(
            lambda: Users.assign(age=now().dt.since(col("since")).astype(int)), ValueError, "column age|now()|feature"
        ),
        # 7.2
        mistake(lambda: Users.assign("user", int, len), ValueError, "user is a key|town, size", "7.2:1"),
        mistake(lambda: Users.assign("since", datetime, len), ValueError, "since is the timestamp|town, size", "7.2:1"),
        mistake(lambda: Users.assign(user=lit(1).astype(int)), ValueError, "user is a key", "7.2:1"),
        mistake(
            lambda: Users.assign(since=col("since").astype(datetime)), ValueError, "since is the timestamp", "7.2:1"
        ),
        mistake(lambda: Users.assign("", int, len), ValueError, "needs a name", "7.2:2"),
        mistake(lambda: Users.assign(**{"": lit(1).astype(int)}), ValueError, "needs a name", "7.2:2"),
        mistake(lambda: Users.assign(x=lit(1)), TypeError, "column x|astype", "7.2:3"),  # type: ignore[call-overload]
        mistake(lambda: Users.assign(x=1), ValueError, "column x|int 1", "7.2:4"),  # type: ignore[call-overload]
        mistake(lambda: Users.assign(x=col("gone").astype(int)), ValueError, "column x|gone", "7.2:5"),
        mistake(lambda: Users.assign(x=(col("town") + 1).astype(int)), ValueError, "column x|+|Optional[str]", "7.2:5"),
        mistake(
            lambda: Orders.assign(x=col("price").astype(int), y=col("shop").astype(str)),
            TypeError,
            'column x is declared int|col("price") is float|column y is declared str|Optional[str]',
            "7.2:6",
        ),
        mistake(lambda: Users.assign(name="x", dtype=int, func=len), TypeError, "by position", "7.2:7"),  # type: ignore[call-overload]
        mistake(lambda: Users.assign(), Exception, "at least one", "7.2:8"),
        mistake(lambda: Users.assign("x", int), Exception, "three arguments, not 2", "7.2:8"),  # type: ignore[call-overload]
        mistake(
            lambda: Users.assign("x", int, len, y=lit(1).astype(int)),  # type: ignore[call-overload]
            ValueError,
            "not both",
            "7.2:9",
        ),
        mistake(
            lambda: Users.assign("x", int, col("user")),  # type: ignore[call-overload]
            ValueError,
            "column x|function|by keyword",
            "types:15:2",
        ),
        mistake(lambda: Users.assign("x", set, len), TypeError, "column x|set"),
        mistake(lambda: Users.assign(3, int, len), ValueError, "int 3"),  # type: ignore[call-overload]
        # 7.3
        mistake(lambda: Users.select("town"), ValueError, "select|key user is missing"),
        mistake(lambda: Users.select("user", "gone"), ValueError, "select|gone|town"),
        mistake(lambda: Users.drop("user"), ValueError, "drop|user is a key|town"),
        mistake(lambda: Users.drop("since"), ValueError, "drop|since is the timestamp"),
        mistake(lambda: Users.drop("gone"), ValueError, "drop|gone|town"),
        mistake(lambda: Users.drop([]), ValueError, "drop"),
        # 7.4
        mistake(lambda: Visits.drop("codes", "seen").dropnull(), ValueError, "dropnull|no column is optional"),
        mistake(lambda: Users.dropnull("gone"), ValueError, "dropnull|gone|town"),
        mistake(lambda: Users.dropnull("since"), ValueError, "dropnull|since (the timestamp)"),
        mistake(lambda: Users.dropnull("born"), ValueError, "dropnull|born is date"),
        mistake(lambda: Users.dropnull([]), ValueError, "dropnull"),
        # 7.5
        mistake(lambda: Users.rename({"gone": "x"}), ValueError, "rename|gone"),
        mistake(lambda: Users.rename({"town": "size", "size": "town"}), ValueError, "rename|town|size"),
        mistake(lambda: Users.rename({"town": ""}), ValueError, "rename|town"),
        mistake(lambda: Users.rename({}), ValueError, "rename"),
        mistake(lambda: Users.rename("town"), ValueError, "rename|dict"),
        # 7.6
        mistake(lambda: Users.transform(len, schema={"user": int}), TypeError, "transform|timestamp since", "7.6:1"),
        mistake(lambda: Users.transform(len, schema={"since": datetime}), TypeError, "transform|key user|int", "7.6:2"),
        mistake(
            lambda: Users.transform(len, schema={"user": str, "since": datetime}),
            TypeError,
            "key user|int|str",
            "7.6:2",
        ),
        mistake(lambda: Users.transform("len"), ValueError, "transform|str", "types:15:4"),
        mistake(lambda: Users.transform(len, schema={**KEY_IN_SCHEMA, "x": set}), TypeError, "column x|set"),
        mistake(lambda: Users.transform(len, schema=["user"]), ValueError, "transform|dict"),
        # 7.7
        mistake(lambda: Users.explode("town"), TypeError, "explode|user"),
        mistake(lambda: Visits.explode("gone"), ValueError, "explode|gone|tags"),
        mistake(lambda: Visits.explode("at"), ValueError, "explode|at is the timestamp"),
        mistake(lambda: Visits.explode("user"), ValueError, "explode|user is int"),
        mistake(lambda: Visits.explode("codes"), ValueError, "codes is Optional[List[int]]|dropnull"),
        mistake(lambda: Visits.explode([]), ValueError, "explode"),
        # 7.8
        mistake(lambda: Users + Users, TypeError, "union|user"),
        mistake(lambda: Orders + Visits, ValueError, "union|price (float) of the left side|due (datetime)"),
        mistake(lambda: Orders + Orders.rename({"at": "t"}), ValueError, "union|timestamp is at|t in the right"),
        mistake(lambda: Orders + total(Orders), ValueError, "union|continuous"),
        mistake(lambda: Orders + 3, TypeError, "union|int 3"),
        # 7.9
        mistake(lambda: Users.dedup("town"), ValueError, "dedup|user"),
        mistake(lambda: Orders.dedup("user", by=["user"]), ValueError, "dedup|both"),
        mistake(lambda: Orders.dedup(["user"]), ValueError, "dedup|list"),
        mistake(lambda: Orders.dedup("gone"), ValueError, "dedup|gone|price"),
        mistake(lambda: Orders.dedup(by="at"), ValueError, "dedup|at is the timestamp"),
        mistake(lambda: Orders.dedup(by=[]), ValueError, "dedup|at least one"),
        mistake(lambda: Orders.dedup("user", window=HOUR), TypeError, "dedup|Continuous"),
        mistake(lambda: Orders.dedup("user", window=Hopping("1h", "1h")), TypeError, "dedup|Hopping"),
        mistake(lambda: Orders.dedup("user", window=Tumbling("1h", "1m")), ValueError, "dedup|lookback of 60 s"),
        # 7.10, 7.11
        mistake(lambda: Orders.groupby(), ValueError, "groupby"),
        mistake(lambda: Orders.groupby([]), ValueError, "groupby"),
        mistake(lambda: Orders.groupby("gone"), Exception, "groupby|gone|Orders|user"),
        mistake(lambda: Orders.groupby("at"), ValueError, "groupby|at is the timestamp"),
        mistake(lambda: Orders.groupby("user", "user"), ValueError, "groupby|user|twice"),
        mistake(lambda: Orders.groupby("user", window=HOUR), TypeError, "groupby|Continuous"),
        mistake(lambda: Orders.groupby("user", window="1h"), TypeError, "groupby|str"),
        mistake(lambda: Orders.groupby("user", window=Hopping("forever", "1h")), TypeError, "groupby|forever"),
        mistake(lambda: Orders.groupby("user", window=Tumbling("1h")).first(), ValueError, "first|aggregate"),
        mistake(lambda: Orders.groupby("user", window=Session("1h")).latest(), ValueError, "latest|aggregate"),
        mistake(lambda: Users.groupby("town").first(), TypeError, "first|user"),
        mistake(lambda: Users.groupby("town").latest(), TypeError, "latest|user"),
        # 7.14
        mistake(lambda: Orders.changelog(delete="gone"), TypeError, "changelog|no keys"),
        mistake(lambda: Users.changelog(), ValueError, "changelog|delete|insert"),  # type: ignore[call-overload]
        mistake(lambda: Users.changelog(delete="a", insert="b"), ValueError, "changelog|one of"),  # type: ignore[call-overload]
        mistake(lambda: Users.changelog("gone"), TypeError, "positional"),  # type: ignore[call-overload]
        mistake(lambda: Users.changelog(delete="town"), ValueError, "changelog|town already"),
        mistake(lambda: Users.changelog(insert="since"), ValueError, "changelog|since already"),
        mistake(lambda: Users.changelog(insert=""), ValueError, "changelog|name"),
        mistake(lambda: Users.changelog(insert=True), ValueError, "changelog|bool"),  # type: ignore[call-overload]
        # A misspelt name is followed by the nearest that there is.
        mistake(lambda: Orders.filter(col("pirce") > 1), ValueError, "did you mean price?"),
        mistake(lambda: Visits.filter(col("place").struct.get("twon") == "x"), ValueError, "did you mean town?"),
        mistake(lambda: Users.select("user", "twon"), ValueError, "did you mean town?"),
        mistake(lambda: Users.drop("twon"), ValueError, "did you mean town?"),
        mistake(lambda: Users.dropnull("twon"), ValueError, "did you mean town?"),
        mistake(lambda: Users.rename({"twon": "x"}), ValueError, "did you mean town?"),
        mistake(lambda: Visits.explode("tasg"), ValueError, "did you mean tags?"),
        mistake(lambda: Orders.dedup("pirce"), ValueError, "did you mean price?"),
        mistake(lambda: Orders.groupby("usr"), ValueError, "did you mean user?"),
        mistake(
            lambda: Orders.groupby("user").aggregate(x=Sum(of="pirce", window=HOUR)), ValueError, "did you mean price?"
        ),
        mistake(lambda: Orders + Orders.rename({"price": "prices"}), ValueError, "did you mean prices?"),
    ],
)
def test_steps_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)


def fading(node: Any) -> Any:
    """Return an aggregate that depends on the time of the read, over windows that aren't continuous."""
    return node.groupby("user").aggregate(total=ExpDecaySum(of="price", half_life="1h", window=Tumbling("1h")))


@pytest.mark.parametrize("terminal", [total, fading])
@pytest.mark.parametrize(
    ("follow", "name"),
    [
        (lambda node: node.filter(col("total") > 1), "filter"),
        (lambda node: node.filter(len), "filter"),
        (lambda node: node.assign(x=lit(1).astype(int)), "assign"),
        (lambda node: node.assign("x", int, len), "assign"),
        (lambda node: node.transform(len), "transform"),
        (lambda node: node.select("user"), "select"),
        (lambda node: node.select("user", "total"), "select"),
        (lambda node: node.drop("total"), "drop"),
        (lambda node: node.dropnull("total"), "dropnull"),
        (lambda node: node.rename({"total": "x"}), "rename"),
        (lambda node: node.dedup("total"), "dedup"),
        (lambda node: node.explode("total"), "explode"),
        (lambda node: node.groupby("user").first(), "first"),
        (lambda node: node.groupby("user").latest(), "latest"),
        (lambda node: node.groupby("user").aggregate(n=Count(window=FOREVER)), "aggregate"),
        (lambda node: node.groupby("user", window=Tumbling("1h")).aggregate(), "aggregate"),
        (lambda node: node + node, "union"),
        (lambda node: Orders + node, "union"),
        (lambda node: node.changelog(delete="gone"), "changelog"),
        pytest.param(
            lambda node: node.join(Users, how="left", on=["user"]), "join", marks=pytest.mark.spec("datasets:7.13:16")
        ),
    ],
)
def test_nothing_follows_a_continuous_aggregate(
    follow: Callable[[Any], Any], name: str, terminal: Callable[[Any], Any]
) -> None:
    check(lambda: follow(terminal(Orders)), ValueError, f"{name}:|continuous windows")


def join(left: Any = Orders, right: Any = Users, how: str = "left", **options: Any) -> Callable[[], Any]:
    return lambda: left.join(right, how=how, **options)


SLIM = Orders.select("user", "shop", "price", "at")


@pytest.mark.parametrize(
    ROW,
    [
        mistake(join(right=Users.drop("town"), on=["user"]), ValueError, "step", "7.13:1"),
        mistake(join(right="Users", on=["user"]), TypeError, "str", "7.13:2"),
        mistake(join(how="outer", on=["user"]), ValueError, "Users|outer", "7.13:3"),
        mistake(join(), ValueError, "Users|on=", "7.13:4"),
        mistake(join(on=["user"], left_on=["user"]), ValueError, "Users|on=", "7.13:4"),
        mistake(join(on=["user"], left_on=["user"], right_on=["user"]), ValueError, "Users", "7.13:4"),
        mistake(join(left_on=["user"]), ValueError, "Users|right_on", "7.13:4"),
        mistake(join(on="user"), ValueError, "Users|list|str", "7.13:4"),
        mistake(join(on=["town"]), ValueError, "Users|on town|are user", "7.13:5"),
        mistake(join(on=[]), ValueError, "Users|are user", "7.13:5"),
        mistake(join(right=Orders, on=["user"]), ValueError, "Orders has no keys", "7.13:5"),
        mistake(join(left_on=["gone"], right_on=["user"]), ValueError, "gone|price", "7.13:6"),
        mistake(join(left=Visits.drop("user"), on=["user"]), Exception, "user|tags", "7.13:7"),
        mistake(join(left_on=["count"], right_on=["user"]), TypeError, "count is Optional[int]", "7.13:8"),
        mistake(join(left_on=["price"], right_on=["user"]), TypeError, "price is float|user is int", "7.13:9"),
        mistake(join(left_on=["stars"], right_on=["user"]), TypeError, "stars is between(int", "7.13:9"),
        mistake(join(left_on=["user", "price"], right_on=["user"]), ValueError, "2 left columns for 1", "7.13:10"),
        mistake(join(on=["user"], within=("1d",)), ValueError, "within|('1d',)", "7.13:11"),
        mistake(join(on=["user"], within="1d"), ValueError, "within", "7.13:11"),
        mistake(join(on=["user"], within=(None, "0s")), ValueError, "(None, '0s')", "7.13:11"),
        mistake(join(on=["user"], within=("0s", "forever")), ValueError, "forever", "7.13:11"),
        mistake(join(on=["user"], within=("5x", "0s")), ValueError, "5x", "7.13:12"),
        mistake(join(on=["user"], within=(5, "0s")), ValueError, "int 5", "7.13:12"),
        mistake(join(SLIM, on=["user"], fields=["gone"]), ValueError, "gone|town, size, born, since", "7.13:13"),
        mistake(join(left_on=["usr"], right_on=["user"]), ValueError, "did you mean user?"),
        mistake(join(SLIM, on=["user"], fields=["twon"]), ValueError, "did you mean town?"),
        mistake(join(SLIM, on=["user"], fields=["user"]), ValueError, "names user", "7.13:13"),
        mistake(
            join(SLIM.rename({"at": "since"}), on=["user"], fields=["since"]),
            ValueError,
            "since is on both sides",
            "7.13:14",
        ),
        mistake(join(on=["user"]), ValueError, "size is on both sides|left|right", "7.13:15"),
        mistake(lambda: total(Orders).join(Users, how="left", on=["user"]), ValueError, "join|continuous"),
        mistake(lambda: Sum(of="price") + Orders, TypeError, "unsupported"),
    ],
)
def test_joins_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)


def test_a_continuous_window_of_a_group_is_none() -> None:
    check(lambda: Orders.groupby("user", window=Continuous("1h")), TypeError, "Hopping, Tumbling or Session")
