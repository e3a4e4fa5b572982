"""Functions that users write in Python, in the form in which definitions hold them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A user's function: its text, for people and for its identity, and its value (cloudpickle).

    `includes` are the texts of the helpers that the function names by `@includes`, of their helpers, and of the values
    and functions that all of these take from their surroundings. Equality ignores the pickle, because the bytes of one
    function vary between versions of Python.
    """

    name: str
    source_code: str
    pickled: bytes = field(compare=False)
    includes: tuple[str, ...] = ()
