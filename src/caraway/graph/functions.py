"""Functions that users write in Python, in the form in which definitions hold them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass


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


def parts_of(spec: object) -> Iterator[object]:
    """Yield a spec and all specs in it, without functions that never run since they were traced to expressions."""
    if isinstance(spec, tuple):
        for part in spec:
            yield from parts_of(part)
    elif is_dataclass(spec):
        yield spec
        traced = getattr(spec, "traced", None) is not None
        for part in fields(spec):
            if not (traced and part.name == "function"):
                yield from parts_of(getattr(spec, part.name))
