"""Tests that functions are found which import modules that the process which is to run them lacks."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import cloudpickle
import pytest

from caraway.compute.extractors.imports import lacking
from caraway.graph.capture.shipping import python_function

TOOLS = "def double(x): return 2 * x\n"
FARM = """
import json
import math

import farm_tools
import numpy as np
from farm_tools import double
from caraway.lib import includes


def by_name(x):
    return double(x)

def by_module(x):
    return farm_tools.double(x)

def in_the_body(x):
    import farm_tools
    return farm_tools.double(x)

def of_the_body(x):
    from farm_tools import double
    return double(x)

def beside_it(x):
    from .tools import double
    return double(x)

def in_a_lambda(x):
    return (lambda y: in_the_body(y))(x)

def in_an_inner_function(x):
    def inner(y):
        import farm_tools.parts as parts
        return parts.double(y)
    return inner(x)

def in_a_condition(x):
    if x > 0:
        import farm_tools
    return x

def a_part_of_an_installed_package(x):
    import google.cloud.no_such_part as part
    return part.double(x)

def in_the_end(x):
    try:
        return x
    finally:
        import farm_tools
        farm_tools.double(x)

class Helper:
    def double(self, x):
        import farm_tools
        return farm_tools.double(x)

def by_a_method(x):
    return Helper().double(x)

@includes(double)
def included(x):
    return double(x) + farm_tools.double(x)

def optional(x):
    try:
        import farm_tools
    except ImportError:
        return x
    return farm_tools.double(x)

def the_first_of_two(x):
    try:
        import json as format
    except ImportError:
        import farm_tools as format
    return format.dumps(x)

def suppressed(x):
    from contextlib import suppress
    with suppress(ImportError):
        import farm_tools
    return x

def what_is_everywhere(x):
    import email.message
    import os.path
    import pandas as pd
    from caraway.lib import bucketize
    from polars import col
    return np.int64(len(json.dumps(math.floor(x))))
"""
MISSING = "No module named 'farm_tools'"
LACKING = {
    "by_name": MISSING,
    "by_module": MISSING,
    "in_the_body": MISSING,
    "of_the_body": MISSING,
    "beside_it": "No module named 'farmyard'",
    "in_a_lambda": MISSING,
    "in_an_inner_function": MISSING,
    "in_a_condition": MISSING,
    "a_part_of_an_installed_package": "No module named 'google.cloud",
    "in_the_end": MISSING,
    "by_a_method": MISSING,
    "included": "",
    "optional": "",
    "the_first_of_two": "",
    "suppressed": "",
    "what_is_everywhere": "",
}


@pytest.fixture(scope="module")
def pickles(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Return the functions of a package as definitions hold them; the package can't be imported any more."""
    folder = tmp_path_factory.mktemp("farm")
    package = folder / "farmyard"
    package.mkdir()
    for path, text in (("farm_tools.py", TOOLS), ("farmyard/__init__.py", ""), ("farmyard/farm.py", FARM)):
        Path(folder, path).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        farm = importlib.import_module("farmyard.farm")
        found = {name: python_function("a function", getattr(farm, name)).pickled for name in LACKING}
    for name in ("farm_tools", "farmyard", "farmyard.farm"):
        del sys.modules[name]
    return found


@pytest.mark.parametrize(("name", "reason"), LACKING.items())
def test_a_function_lacks_the_modules_that_it_imports_in_any_case(
    pickles: Mapping[str, bytes], name: str, reason: str
) -> None:
    found = lacking(pickles[name])
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_other_errors_while_a_function_is_loaded_say_nothing_about_modules() -> None:
    class Unloadable:
        def __reduce__(self) -> tuple[object, ...]:
            return eval, ("1 / 0",)

    assert lacking(cloudpickle.dumps(Unloadable())) == ""
