"""`Sample`: a share of a source's rows, by hash of some of their columns."""

from caraway.errors import DefinitionError


class Sample:
    """The share `rate` of the rows; those with equal values of the columns `using` are kept or dropped together.

    Args:
        rate: From 0 to 1.
        using: Names of fields that come from the payload, not the timestamp.

    Raises:
        DefinitionError: The rate isn't a number from 0 to 1, or no column is given.
    """

    def __init__(self, rate: float, using: list[str]) -> None:
        columns: object = using
        self.rate = checked_rate("Sample", rate)
        if not isinstance(columns, (list, tuple)) or not columns:
            raise DefinitionError(f"Sample: using is a list of columns that isn't empty, not {using!r}")
        if wrong := [name for name in columns if not isinstance(name, str)]:
            raise DefinitionError(f"Sample: using has {wrong[0]!r}; names of columns are expected")
        self.using = list(using)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and (other.rate, other.using) == (self.rate, self.using)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Sample(rate={self.rate}, using={self.using})"


def checked_rate(where: str, rate: object) -> float:
    """Check a rate.

    Raises:
        DefinitionError: The rate isn't a number from 0 to 1.
    """
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise DefinitionError(f"{where}: the rate is a number from 0.0 to 1.0, not {rate!r}")
    return float(rate)
