"""The decorator of commands, which lets several commands share options."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_origin, get_type_hints

from caraway.apps.cli.output import plain_errors


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that typer takes as a command; it prints an error of Caraway as text and exits with code 1.

    A parameter whose type is a dataclass becomes one option for each annotated field of the dataclass, and `function`
    gets an instance with the values that the user gave.
    """
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in signature(function).parameters.items():
        shared = _options(parameter.annotation) if is_dataclass(parameter.annotation) else []
        if shared:
            groups[name] = parameter.annotation, [option.name for option in shared]
        parameters += shared or [parameter.replace(kind=Parameter.KEYWORD_ONLY)]

    @wraps(function)
    def run(**given: Any) -> None:
        for name, (group, options) in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options})
        with plain_errors():
            function(**given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # typer reads the options from it
    return run


def _options(group: Any) -> list[Parameter]:
    """Return the annotated fields of a dataclass as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
        if get_origin(hints[field.name]) is Annotated
    ]
