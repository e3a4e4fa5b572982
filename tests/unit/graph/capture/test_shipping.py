"""Tests of the pickles in which functions travel, and in which stored definitions keep them."""

import pickletools
from datetime import datetime
from typing import Any

from caraway.datasets import dataset, field
from caraway.graph.capture.shipping import ship


@dataset(index=True)
class Users:
    user: int = field(key=True)
    at: datetime


def uses_a_dataset(cls: Any, ts: Any, x: Any) -> Any:
    return x + len(Users.__name__)


def test_a_pickle_names_only_the_module_of_handles() -> None:
    # Definitions in the database of an older version hold such pickles, so a module that they name can't be moved.
    pickled = ship("an extractor", uses_a_dataset, "A", ("x",), {})
    texts = {argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)}
    assert {text for text in texts if text.startswith("caraway.")} == {"caraway.graph.runtime"}
