"""`@expectations`, which marks the method of a dataset that lists expectations on its rows.

Rows that fail an expectation are counted and kept, unless it is strict: then they are refused.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.expectations import EXPECTATION_NAMES, STRICT, Expectation, ExpectationSuite, argument_fault
from caraway.lib.metadata import get_metadata

# The attribute of a method marked by `@expectations` that holds its `ExpectationsMark`.
EXPECTATIONS_ATTRIBUTE = "__caraway_expectations__"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationsMark:
    """The mark that `@expectations` adds to a method.

    Attributes:
        version: The version of the checks.
        strict: True if all checks are strict that don't say otherwise.
    """

    version: int
    strict: bool = False


@overload
def expectations(obj: F) -> F: ...
@overload
def expectations(*, version: int = 0, strict: bool = False) -> Callable[[F], F]: ...
def expectations(obj: Any = None, *, version: int = 0, strict: bool = False) -> Any:
    """Mark the method of a dataset that lists expectations on its rows.

    The method takes `cls` alone and returns a list of `expect_...(...)`. It runs once, when the dataset is defined.

    Args:
        obj: The method, if the decorator stands bare.
        version: Version of the checks; a new version counts from zero. The dataset's version needn't rise.
        strict: Refuse rows that fail, instead of counting them only: a refused row becomes a dead letter. A check may
            say `strict=True` or `strict=False` for itself. Strict checks need a dataset that sources feed, and belong
            to its definition, so changing them needs a new version of the dataset.

    Raises:
        DefinitionTypeError: The version is no int, `strict` no bool, or the decorated object can't be called.
    """
    if not isinstance(version, int) or isinstance(version, bool):  # type: ignore[redundant-expr]  # users pass anything
        raise DefinitionTypeError(f"@expectations: the version is an int, not {version!r}")
    if not isinstance(strict, bool):
        raise DefinitionTypeError(f"@expectations: strict is True or False, not {strict!r}")

    def decorate(found: F) -> F:
        if not callable(found):
            raise DefinitionTypeError(f"@expectations goes onto a method (cls), not {type(found).__name__} {found!r}")
        setattr(found, EXPECTATIONS_ATTRIBUTE, ExpectationsMark(version=version, strict=strict))
        return found

    return decorate if obj is None else decorate(obj)


def expectations_of(body: type, dataset: Any) -> ExpectationSuite | None:
    """Call the method marked by `@expectations` in a class body, if it has one, and return the checks that it lists.

    The method gets the dataset made from the class body as its `cls`.
    """
    where = f"dataset {dataset.fqn()}"
    marked = {name: member for name, member in vars(body).items() if hasattr(member, EXPECTATIONS_ATTRIBUTE)}
    if not marked:
        return None
    if len(marked) > 1:
        raise DefinitionError(f"{where} has several methods with @expectations: {', '.join(marked)}; put all into one")
    (name, method), *_ = marked.items()
    parameters = list(inspect.signature(method).parameters)
    if parameters != ["cls"]:
        raise DefinitionError(f"{where}: expectations {name} takes cls alone, not ({', '.join(parameters)})")
    if get_metadata(method) is not None:
        raise DefinitionError(f"{where}: expectations {name} can't have @meta; put it onto the dataset")
    if dataset.is_terminal:
        raise DefinitionError(
            f"{where}: expectations {name} are impossible: a pipeline ends in an aggregate over continuous windows, "
            "whose values are computed when they are read"
        )
    mark: ExpectationsMark = getattr(method, EXPECTATIONS_ATTRIBUTE)
    return suite_of(dataset.fqn(), mark.version, method(dataset), strict=mark.strict)


def suite_of(dataset: str, version: int, returned: object, *, strict: bool = False) -> ExpectationSuite:
    """Return the checks of a dataset from the result of its method, which is a list of `expect_...(...)`.

    Checks that don't say whether they are strict are so if `strict` is set.
    """
    where = f"expectations of dataset {dataset}"
    if not isinstance(returned, (list, tuple)):
        raise DefinitionTypeError(
            f"{where}: the method returns a list of expect_...(...), not {type(returned).__name__} {returned!r}"
        )
    return ExpectationSuite(
        name=f"dataset_{dataset}_expectations",
        version=version,
        expectations=tuple(_expectation(where, item, strict=strict) for item in returned),
    )


def _expectation(where: str, item: object, *, strict: bool) -> Expectation:
    match item:
        case (str() as name, dict() as own) if name in EXPECTATION_NAMES:
            arguments = {**own, STRICT: strict} if own.get(STRICT) is None else own
            if fault := argument_fault(name, arguments):
                raise DefinitionError(f"{where}: {name}: {fault}")
            given = {key: _plain(value) for key, value in arguments.items() if value is not None}
            if not given.get(STRICT):
                # Only checks that refuse rows get this argument. So a check that only counts rows has the same
                # definition as before the argument existed.
                given.pop(STRICT, None)
            try:
                return Expectation(name=name, arguments=json.dumps(given, ensure_ascii=False))
            except (TypeError, ValueError) as error:
                raise DefinitionError(f"{where}: {name} has an argument that is no JSON: {error}") from None
        case _:
            raise DefinitionTypeError(f"{where}: the list holds {item!r}, which is no expect_...(...)")


def _plain(value: object) -> object:
    """Return an argument in JSON's types, with sets sorted and fields as names, so that equal ones are equal text."""
    match value:
        case set() | frozenset():
            return sorted((_plain(item) for item in value), key=lambda item: (type(item).__name__, str(item)))
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
