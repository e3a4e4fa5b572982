"""The base of all external systems: a name, settings, and a reference to a registered system."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from caraway.connectors.settings import Settings, stored
from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.systems import RegisteredSystem


class DataSource(Settings):
    """The address and credentials of an external system; its name is unique in the deployment."""

    name: str

    #: The kind of the system in a spec.
    kind: ClassVar[str]
    #: The end of the error message for users who give the system itself to `@source` or `@sink`: it names the method
    #: that makes the table or topic that these need.
    required_fields: ClassVar[str]

    def identifier(self) -> str:
        """Return the system's name for people."""
        return f"[{self.kind}: {self.name}]"


class ExternalSource(DataSource):
    """A system outside of Caraway, which can be registered on the server."""

    #: The class of the system's spec, whose fields are the settings.
    spec_class: ClassVar[type[Any]]
    #: The settings whose names differ from those of their fields in the spec: the name of the setting, by that of the
    #: field.
    renamed: ClassVar[Mapping[str, str]] = {}
    # True if the object is a reference to a system that was registered on the server.
    _registered = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "spec_class" in vars(cls):
            cls.kind = cls.spec_class.kind

    @classmethod
    def get(cls, name: str) -> Self:
        """Return a reference, by name, to a system that was registered on the server."""
        if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(f"{cls.__name__}.get: the name is a str that isn't empty, not {name!r}")
        made = cls.__new__(cls)
        made.name = name
        made._registered = True  # noqa: SLF001 (its own class)
        return made

    def stored_system(self) -> Any:
        """Return the system as a value."""
        if self._registered:
            return RegisteredSystem(kind=self.kind, name=self.name)
        settings = {field.name: self.renamed.get(field.name, field.name) for field in fields(self.spec_class)}
        return self.spec_class(**{name: self._stored(setting) for name, setting in settings.items()})

    def _stored(self, setting: str) -> Any:
        return stored(getattr(self, setting))


def named(where: str, what: str, value: object) -> str:
    """Check the name of a thing inside a system.

    Raises:
        DefinitionError: The name is empty.
        DefinitionTypeError: The name is no text.
    """
    if not isinstance(value, str):
        raise DefinitionTypeError(f"{where}: {what} is a str, not {type(value).__name__} {value!r}")
    if not value:
        raise DefinitionError(f"{where}: {what} is empty")
    return value


def duration_us(where: str, what: str, value: object) -> int:
    """Return a duration in microseconds.

    Raises:
        DefinitionError: The value isn't a duration.
    """
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # users pass anything
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{where}: {what}: {error}") from None
