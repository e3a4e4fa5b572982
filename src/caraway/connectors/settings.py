"""Settings of connectors: keyword-only, checked when they are given."""

import json
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from caraway.errors import DefinitionError
from caraway.graph.systems import SecretRef
from caraway.integrations.aws import Secret

Secretish = str | Secret
# A setting is confidential if its name contains one of these words; then no error message and no `repr` shows its
# value.
CONFIDENTIAL = ("password", "secret", "token", "key")


@dataclass_transform(kw_only_default=True)
class Settings:
    """A class whose annotations are its settings; those with a value have it as their default.

    Unknown settings are ignored, as in the API. A setting that is missing or of a wrong type raises `DefinitionError`,
    a ValueError.
    """

    #: The settings with their annotations.
    _kinds: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._kinds = {
            name: hint
            for name, hint in get_type_hints(cls).items()
            if not name.startswith("_") and ClassVar not in (hint, get_origin(hint))
        }

    def __init__(self, **given: Any) -> None:
        """Set and check the settings."""
        kinds = self._kinds
        label = type(self).__name__ + (f" {given['name']}" if isinstance(given.get("name"), str) else "")
        missing = [name for name in kinds if name not in given and not hasattr(type(self), name)]
        if missing:
            raise DefinitionError(f"{label}: {', '.join(missing)} missing; settings: {', '.join(kinds)}")
        for name, accepted in kinds.items():
            value = given[name] if name in given else getattr(type(self), name)
            setattr(self, name, _checked(f"{label}: {name}", name, value, accepted))
        if not getattr(self, "name", "nameless"):
            raise DefinitionError(f"{label}: the name is empty")
        self._check()

    def _check(self) -> None:
        """Check the values of settings, and how they go together."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in vars(self).items() if not is_confidential(name))
        return f"{type(self).__name__}({', '.join(shown)})"


def is_confidential(name: str) -> bool:
    """Return whether a setting of this name may be a credential."""
    return any(word in name for word in CONFIDENTIAL)


def _checked(where: str, name: str, value: Any, accepted: Any) -> Any:
    members = get_args(accepted) if get_origin(accepted) in (Union, UnionType) else (accepted,)
    for member in members:
        if _is(value, member):
            return value
    if int in members and isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    expected = " or ".join("None" if m is NoneType else getattr(m, "__name__", str(m)) for m in members)
    shown = type(value).__name__ if is_confidential(name) else f"{type(value).__name__} {value!r}"
    raise DefinitionError(f"{where} is {expected}, not {shown}")


def _is(value: Any, member: Any) -> bool:
    origin, args = get_origin(member), get_args(member)
    if origin is dict:
        return isinstance(value, dict) and all(_is(k, args[0]) and _is(v, args[1]) for k, v in value.items())
    if origin is list:
        return isinstance(value, list) and all(_is(item, args[0]) for item in value)
    return isinstance(value, member) and not (isinstance(value, bool) and member is int)


def one_of(where: str, value: object, options: tuple[str, ...]) -> None:
    """Check that a value is one of several texts.

    Raises:
        DefinitionError: The value is none of them.
    """
    if value not in options:
        raise DefinitionError(f"{where} is one of {', '.join(options)}, not {value!r}")


def is_text_dict(value: object) -> bool:
    """Return whether a value is a dict of texts that aren't empty."""
    return isinstance(value, Mapping) and all(
        isinstance(k, str) and isinstance(v, str) and k != "" and v != "" for k, v in value.items()
    )


def stored(value: Any) -> Any:
    """Return a setting as a spec holds it: a secret as a reference, the key of a service account as JSON text."""
    match value:
        case Secret():
            return SecretRef(arn=value.arn, role_arn=value.role_arn, path=tuple(value.path or ()))
        case Mapping():
            return json.dumps(dict(value), sort_keys=True)
        case _:
            return value
