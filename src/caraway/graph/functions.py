"""Functions that users write in Python, in the form in which definitions hold them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A user's function: its text, for people and for its identity, and its value (cloudpickle).

    `includes` are the texts of the helpers that it names by `@includes`, and of their helpers. Equality ignores the
    pickle, because its bytes vary between versions of Python for the same function.
    """

    name: str
    source_code: str
    pickled: bytes = field(compare=False)
    includes: tuple[str, ...] = ()
