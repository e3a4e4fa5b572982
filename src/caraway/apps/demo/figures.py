"""Measured durations and their quantiles."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """The distribution of durations, in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, max {self.max_ms:.1f} ms (of {self.count})"

    def as_json(self) -> dict[str, float]:
        """Return the quantiles for a report."""
        return asdict(self)


def quantiles(seconds: Sequence[float]) -> Quantiles:
    """Return the quantiles of durations; there must be at least one."""
    ms = 1000 * np.asarray(seconds)
    p50, p90, p99 = np.quantile(ms, [0.5, 0.9, 0.99])
    return Quantiles(count=len(ms), p50_ms=float(p50), p90_ms=float(p90), p99_ms=float(p99), max_ms=float(ms.max()))
