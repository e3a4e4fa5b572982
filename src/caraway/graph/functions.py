"""Functions that users write in Python, as they travel."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A user's function: its text for people and for its identity, and itself by value (cloudpickle).

    `includes` are the texts of the helpers that it names by `@includes`, and theirs. The pickle is no part of equality:
    its bytes vary between versions of Python for one and the same function.
    """

    name: str
    source_code: str
    pickled: bytes = field(compare=False)
    includes: tuple[str, ...] = ()
