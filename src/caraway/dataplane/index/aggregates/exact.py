"""The aggregates that are functions of exact sums (`caraway.process.exact_sums`)."""

from collections.abc import Callable, Mapping

from caraway.graph.aggregates import AggregateFunction
from caraway.process.exact_sums import Moments

# The aggregates that are computed from moments. The second argument of their functions is the unit: the integer that
# stands for 1 among the values, such as 100 for decimals with two digits.
MOMENTS: Mapping[AggregateFunction, Callable[[Moments, int], float]] = {
    AggregateFunction.AVERAGE: Moments.mean,
    AggregateFunction.STDDEV: Moments.stddev,
    AggregateFunction.VARIANCE: Moments.variance,
}
