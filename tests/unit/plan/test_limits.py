"""What the streaming engine can't keep exact is refused at commit, by name, with a way out."""

# Checkers see classes where decorators make datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, union-attr"
from collections.abc import Callable
from typing import Any

import pytest

from caraway.datasets import Count
from caraway.dtypes import Tumbling
from caraway.errors import CommitError
from caraway.expr import col
from tests.unit.datasets.shop import Orders, Users
from tests.unit.plan.test_streamed import SLIM, TABLE, planned

DISTINCT = SLIM.dedup("shop").groupby("user").latest()
BY_SHOP = SLIM.groupby("user", "shop").aggregate(n=Count(window=Tumbling("1h")))


@pytest.mark.parametrize(
    "build",
    [
        lambda: TABLE.join(Users, how="left", on=["user"], fields=["town"]).join(
            Users, how="left", on=["user"], fields=["born"]
        ),
        lambda: SLIM.groupby("user").first().join(Users, how="inner", on=["user"]),
        lambda: DISTINCT.join(Users, how="left", on=["user"]).filter(col("price") > 1),
        lambda: BY_SHOP.join(Users, how="left", on=["user"]),
    ],
)
def test_a_table_that_may_be_corrected_is_not_joined_with_a_table(build: Callable[[], Any]) -> None:
    with pytest.raises(
        CommitError, match=r"dataset Derived, pipeline compute: .*can't join a table with Users.*before"
    ):
        planned(build)


def test_other_joins_are_planned() -> None:
    planned(lambda: TABLE.join(Users, how="left", on=["user"]))
    planned(lambda: Orders.select("user", "price").dedup("price").join(Users, how="left", on=["user"]))
