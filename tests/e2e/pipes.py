"""Two totals over the same events, computed by two jobs, in two versions."""

# ruff: noqa: ANN202 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, call-arg, arg-type"

from datetime import datetime

from caraway import F, dataset, featureset, field, pipeline
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, Sum
from caraway.dtypes import Continuous, Session
from caraway.expr import col
from caraway.featuresets import Featureset
from caraway.lib import inputs

__owner__ = "e2e@example.com"

hook = Webhook(name="switch")
# No two rows of a pipe are as close as this, so the step removes none. But it keeps rows, and therefore needs a job.
BRIEF = Session("1s")


def definitions(version: int) -> tuple[list[Dataset], list[Featureset]]:
    """Define two totals that are computed by two jobs; those of the second version are negative."""
    sign = 1 if version == 1 else -1

    @source(hook.endpoint("taps"), disorder="1d", cdc="append")
    @dataset
    class Taps:
        pipe: int
        litres: int
        at: datetime

    @dataset(index=True, version=version)
    class Flow:
        pipe: int = field(key=True)
        litres: int
        at: datetime

        @pipeline
        @inputs(Taps)
        def add(cls, taps: Dataset):
            signed = taps.assign(signed=(col("litres") * sign).astype(int)).dedup(by=["pipe"], window=BRIEF)
            return signed.groupby("pipe").aggregate(litres=Sum(of="signed", window=Continuous("forever")))

    @dataset(index=True, version=version)
    class Double:
        pipe: int = field(key=True)
        litres: int
        at: datetime

        @pipeline
        @inputs(Taps)
        def add(cls, taps: Dataset):
            signed = taps.assign(signed=(col("litres") * (2 * sign)).astype(int)).dedup(by=["pipe"], window=BRIEF)
            return signed.groupby("pipe").aggregate(litres=Sum(of="signed", window=Continuous("forever")))

    @featureset
    class Pipe:
        pipe: int
        flow: int = F(Flow.litres, default=0)
        double: int = F(Double.litres, default=0)

    return [Taps, Flow, Double], [Pipe]
