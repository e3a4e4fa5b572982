"""The question why a feature has its value: its arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caraway.client import arguments
from caraway.client.frames import json_value
from caraway.compute.why.model import MAX_LISTED
from caraway.dtypes.instants import instant_us, iso_instant
from caraway.errors import InvalidInputError
from caraway.featuresets.features import Feature

# The value of each input, by its feature or the feature's full name.
WhyInputs = Mapping[Feature, Any] | Mapping[str, Any] | Mapping[Feature | str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyQuestion:
    """The arguments of `Client.why`, checked: inputs as JSON has them, the time in microseconds."""

    feature: str
    inputs: Mapping[str, Any]
    at_us: int | None
    as_known: bool
    offset: int
    limit: int
    sample: bool

    def body(self) -> dict[str, Any]:
        """Return the body of the request."""
        return {
            "feature": self.feature,
            "inputs": dict(self.inputs),
            "at": None if self.at_us is None else iso_instant(self.at_us),
            "as_known": self.as_known,
            "offset": self.offset,
            "limit": self.limit,
            "sample": self.sample,
        }


def question_of(
    feature: Feature | str,
    inputs: WhyInputs,
    at: Any,
    *,
    as_known: bool,
    offset: int,
    limit: int,
    sample: bool,
) -> WhyQuestion:
    """Return the question of some arguments; see `Client.why`.

    Raises `InvalidInputError` if an argument is wrong.
    """
    names = list(arguments.output_features([feature], "why"))
    if len(names) != 1 or "." not in names[0]:
        raise InvalidInputError("why: one feature is explained at a time; name it as Featureset.feature")
    if not isinstance(inputs, Mapping):
        raise InvalidInputError(f"why: inputs is a {type(inputs).__name__}; give a dict of features and their values")
    given = {name: json_value(value) for name, value in zip(_names(inputs), inputs.values(), strict=True)}
    if not 0 <= limit <= MAX_LISTED or offset < 0:
        raise InvalidInputError(f"why: limit is from 0 to {MAX_LISTED:,}, and offset from 0 on")
    try:
        at_us = None if at is None else instant_us(at)
    except (InvalidInputError, ValueError) as error:
        raise InvalidInputError(f"why: at: {error}") from None
    return WhyQuestion(
        feature=names[0], inputs=given, at_us=at_us, as_known=as_known, offset=offset, limit=limit, sample=sample
    )


def _names(inputs: WhyInputs) -> list[str]:
    return list(arguments.input_features(list(inputs), "why"))
