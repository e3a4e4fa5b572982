"""What all external systems have in common: a name, settings, and that they may be registered on the server."""

from typing import ClassVar, Self

from caraway.connectors.settings import Settings
from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import RegisteredSystem, SystemKind


class DataSource(Settings):
    """Address and credentials of one external system; its name is unique among all of a deployment."""

    name: str

    #: What stands behind this class in a spec.
    kind: ClassVar[SystemKind]
    #: What is missing if the system itself is given to `@source` or `@sink`.
    required_fields: ClassVar[str]
    # Whether it stands for a system that was registered on the server.
    _registered = False

    @classmethod
    def _reference(cls, name: str) -> Self:
        """Make a reference to a system that was registered on the server, by name."""
        if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(f"{cls.__name__}.get: the name is a str that isn't empty, not {name!r}")
        made = cls.__new__(cls)
        made.name = name
        made._registered = True  # noqa: SLF001 (its own class)
        return made

    def _registered_system(self) -> RegisteredSystem | None:
        return RegisteredSystem(kind=self.kind, name=self.name) if self._registered else None

    def identifier(self) -> str:
        """Name the system for people."""
        return f"[{self.kind}: {self.name}]"


def named(where: str, what: str, value: object) -> str:
    """Check that what is inside of a system has a name.

    Raises:
        DefinitionError: It is empty.
        DefinitionTypeError: It is no text.
    """
    if not isinstance(value, str):
        raise DefinitionTypeError(f"{where}: {what} is a str, not {type(value).__name__} {value!r}")
    if not value:
        raise DefinitionError(f"{where}: {what} is empty")
    return value


def duration_us(where: str, what: str, value: object) -> int:
    """Read a duration.

    Raises:
        DefinitionError: It isn't one.
    """
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # users pass anything
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{where}: {what}: {error}") from None
