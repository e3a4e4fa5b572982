"""The reference: its code runs and prints what it says, nothing public is left out, and links lead somewhere."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import caraway.connectors
import caraway.datasets
import caraway.dtypes
import caraway.featuresets
import caraway.lib
from caraway.connectors import DataSource, sink, source
from caraway.connectors.settings import Settings
from caraway.datasets import AggregateType, GroupBy, dataset, field, index, pipeline
from caraway.datasets.nodes import Node
from caraway.dtypes import windows
from caraway.featuresets import extractor, feature
from caraway.lib import bucketize, expectations, meta
from tests.markdown import DOCS, blocks, dead_links, linked_files, run_page

REFERENCE = DOCS / "reference"
README = DOCS.parent / "README.md"
PAGES = sorted(page for page in REFERENCE.rglob("*.md") if page.name != "README.md")

# These names are public for the sake of imports alone, or only as results of other functions.
WITHOUT_A_WORD = frozenset(
    {
        # Classes of operators, leftovers of the API, and types that stand in annotations.
        *("Aggregate", "Dedup", "Explode", "Filter", "First", "GroupBy", "Join", "Transform", "Union_"),
        *("OnDemand", "Summary", "Visitor", "on_demand", "AggregateType", "Pipeline"),
        *("Extractor", "ExtractorType", "Feature", "Featureset", "is_valid_feature", "is_valid_featureset"),
        *("DataConnector", "DataSource", "Eval", "Ref", "PreProcValue", "WhereValue", "SINK_FIELD", "SOURCE_FIELD"),
        *(name for name in caraway.connectors.__all__ if name.endswith("Connector")),
    }
)


def _id(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks(page), "a page shows what it tells"
    run_page(page, tmp_path, monkeypatch)


def _names(folder: str) -> set[str]:
    return {page.stem.replace("_", "") for page in (REFERENCE / folder).glob("*.md")}


def test_every_operator_has_a_page() -> None:
    steps = {
        name
        for cls in (Node, GroupBy)
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if inspect.signature(method).return_annotation in ("Dataset", GroupBy) and (name == "__add__" or name[0] != "_")
    }
    assert len(steps) > 10
    assert {"union" if name == "__add__" else name for name in steps - {"add_step"}} == _names("operators")


def _public_subclasses(of: type, package: object) -> set[str]:
    found = {name: getattr(package, name) for name in getattr(package, "__all__")}  # noqa: B009 (of any module)
    return {
        name for name, value in found.items() if isinstance(value, type) and issubclass(value, of) and value is not of
    }


def test_every_aggregate_has_a_page() -> None:
    aggregates = _public_subclasses(AggregateType, caraway.datasets)
    assert aggregates
    assert {name.lower() for name in aggregates} == _names("aggregates")


def test_every_connector_has_a_page() -> None:
    systems = _public_subclasses(DataSource, caraway.connectors)
    assert systems
    assert {name.lower() for name in systems} - _names("connectors") == set()


def test_every_window_has_a_heading() -> None:
    kinds = {
        name for name, value in vars(windows).items() if inspect.isclass(value) and value.__module__ == windows.__name__
    }
    headings = re.findall(r"^## `?(\w+)", (REFERENCE / "windows.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert kinds
    assert kinds - set(headings) == set()


@pytest.mark.parametrize(
    "package", [caraway.datasets, caraway.featuresets, caraway.lib, caraway.connectors], ids=lambda p: str(p.__name__)
)
def test_every_public_name_is_told_of(package: object) -> None:
    told = set(re.findall(r"\w+", "\n".join(page.read_text(encoding="utf-8") for page in PAGES)))
    names = set(getattr(package, "__all__"))  # noqa: B009 (of any module)
    assert sorted(names - told - WITHOUT_A_WORD) == []


# Functions that are documented by a signature, each with the parameters that a user doesn't write.
FUNCTIONS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    **{f.__name__: (f, set()) for f in (source, sink, field, bucketize, meta)},
    "dataset": (dataset, {"cls"}),
    "index": (index, {"obj"}),
    "pipeline": (pipeline, {"function"}),
    "expectations": (expectations, {"obj"}),
    "extractor": (extractor, {"function", "depends_on"}),
    "feature": (feature, set()),
    "join": (Node.join, {"self"}),
    "transform": (Node.transform, {"self"}),
}
CLASSES: dict[str, type] = {
    name: cls
    for package in (caraway.datasets, caraway.dtypes, caraway.connectors)
    for name, cls in inspect.getmembers(package, inspect.isclass)
    if issubclass(cls, (AggregateType, Settings)) or cls.__module__ == windows.__name__
}


def _signatures(page: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the signatures on a page as parameters and defaults; `...` for no default."""
    for name, text in re.findall(r"`@?(\w+)\(([^`]*)\)(?: -> \w+)?`", page.read_text(encoding="utf-8")):
        if name in FUNCTIONS or name in CLASSES:
            try:
                definition = ast.parse(f"def f({text}): ...").body[0]
            except SyntaxError:
                continue
            assert isinstance(definition, ast.FunctionDef)
            args = definition.args
            given = [*args.args, *args.kwonlyargs]
            # One with types is a signature, others are examples of use.
            if given and given[-1].annotation is not None:
                defaults = [None] * (len(args.args) - len(args.defaults)) + [*args.defaults, *args.kw_defaults]
                values = [... if default is None else ast.literal_eval(default) for default in defaults]
                yield name, {a.arg: value for a, value in zip(given, values, strict=True) if a.arg != "reference"}


def _parameters(name: str) -> dict[str, object]:
    if name in FUNCTIONS:
        function, unwritten = FUNCTIONS[name]
        parameters = inspect.signature(function).parameters.values()
        named = [p for p in parameters if p.kind is not p.VAR_POSITIONAL and p.name not in unwritten]
        return {p.name: ... if p.default is p.empty else p.default for p in named}
    cls = CLASSES[name]
    if issubclass(cls, Settings):
        return {setting: getattr(cls, setting, ...) for setting in cls._kinds}
    assert dataclasses.is_dataclass(cls)
    return {f.name: ... if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(cls)}


def test_signatures_are_those_of_the_code() -> None:
    told = [(_id(page), *found) for page in PAGES for found in _signatures(page)]
    assert [(page, name, given) for page, name, given in told if given != _parameters(name)] == []
    abstract = {"AggregateType", "DataSource"}
    assert {*FUNCTIONS, *CLASSES} - {name for _, name, _ in told} - abstract == set()


def test_the_index_leads_to_every_page() -> None:
    reached, ahead = set(), {REFERENCE / "README.md"}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        ahead |= {
            file for file in linked_files(page) if file.suffix == ".md" and file.is_relative_to(REFERENCE)
        } - reached
    assert [_id(page) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize(
    "page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(DOCS.parent))
)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []
