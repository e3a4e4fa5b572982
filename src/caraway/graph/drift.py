"""Thresholds of drift, which are part of a feature's metadata."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the values of a feature may move before that is an alarm.

    None means the default; infinity (`math.inf`) means that a distance is never an alarm.

    Attributes:
        psi: The population stability index: 0.2 by default.
        ks: The Kolmogorov-Smirnov distance, from 0 to 1: 0.1 by default.
        mean: The shift of the mean, in standard deviations of the reference: 0.5 by default.
        missing: The change of the share of rows without a value (null or NaN), from 0 to 1: 0.05 by default.
        categories: The share of a category that is new, or that has vanished, from 0 to 1: 0.02 by default.
    """

    psi: float | None = None
    ks: float | None = None
    mean: float | None = None
    missing: float | None = None
    categories: float | None = None

    def over(self, wider: "Drift") -> "Drift":
        """Return these thresholds; those that are None are taken from `wider`."""
        return Drift(
            **{
                item.name: getattr(wider, item.name) if getattr(self, item.name) is None else getattr(self, item.name)
                for item in fields(self)
            }
        )


# A population stability index (`psi`) above 0.2 is commonly called a significant shift of a population, and one between
# 0.1 and 0.2 a moderate one.
DEFAULT_DRIFT = Drift(psi=0.2, ks=0.1, mean=0.5, missing=0.05, categories=0.02)
