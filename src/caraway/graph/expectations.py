"""What a dataset's owner expects of its rows: counted, never enforced."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One check: the name of its function in lower case, and its arguments other than None, as canonical JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationSuite:
    """All checks of a dataset, with their own version."""

    name: str
    version: int
    expectations: tuple[Expectation, ...]
