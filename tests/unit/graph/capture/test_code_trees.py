"""Tests of the classes and lambdas found in the text of a file."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from caraway.graph.capture.code_trees import FieldText, fields_text, lambdas

TEXT = """
class Plain:
    # first line
    # second line
    a: int

    b: str
    # of the other b
    b: str
    c = 1


def make(large):
    if large:
        class Local:
            # the large one
            x: int
            y: int
    else:
        class Local:
            # the small one
            x: int
    return Local


class Outer:
    class Inner:
        # within
        z: int
"""


def module(tmp_path: Path, name: str, text: str) -> ModuleType:
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def test_fields_have_the_comments_above_them_and_stand_as_often_as_written(tmp_path: Path) -> None:
    plain = module(tmp_path, "trees_plain", TEXT).Plain
    assert fields_text(plain) == (
        FieldText("a", "first line\nsecond line"),
        FieldText("b", ""),
        FieldText("b", "of the other b"),
    )


def test_of_classes_of_one_name_it_is_the_one_with_these_fields(tmp_path: Path) -> None:
    loaded = module(tmp_path, "trees_local", TEXT)
    assert fields_text(loaded.make(large=True)) == (FieldText("x", "the large one"), FieldText("y", ""))
    assert fields_text(loaded.make(large=False)) == (FieldText("x", "the small one"),)
    assert fields_text(loaded.Outer.Inner) == (FieldText("z", "within"),)


def test_a_class_without_text_has_no_fields_there() -> None:
    assert fields_text(type("Made", (), {"__annotations__": {"a": int}})) == ()
    assert fields_text(int) == ()


def test_lambdas_of_what_is_not_python_are_none() -> None:
    assert lambdas("this is { no python") == ()
    assert [ast.unparse(found) for found in lambdas("f = lambda x: (lambda y: x + y)")] == [
        "lambda x: lambda y: x + y",
        "lambda y: x + y",
    ]


def test_a_file_of_many_definitions_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"class C{number}:\n    # what\n    a: int\n    b = lambda x: x\n" for number in range(20))
    loaded = module(tmp_path, "trees_many", text)
    parse = Mock(wraps=ast.parse)
    monkeypatch.setattr(ast, "parse", parse)
    for number in range(20):
        assert fields_text(vars(loaded)[f"C{number}"]) == (FieldText("a", "what"),)
        assert len(lambdas(text)) == 20
    parse.assert_called_once_with(text)
