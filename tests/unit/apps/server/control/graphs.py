"""Small graphs for the tests of control."""

from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Aggregate, Dedup, Filter, Input
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import (
    DatasetSpec,
    Extractor,
    FeaturesetSpec,
    FeatureSpec,
    IndexSpec,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.windows import ContinuousWindow
from tests.unit.graph.building import dataset

HOUR_US = 3_600_000_000
OWNER = Metadata(owner="test@example.com")


def hooked(endpoint: str, cdc: Cdc, disorder_us: int = HOUR_US) -> SourceSpec:
    connector = WebhookConnector(name="hook", endpoint=endpoint, retention_us=0)
    return SourceSpec(connector=connector, disorder_us=disorder_us, cdc=cdc)


def clicks(*, version: int = 1, history_us: int = HOUR_US, disorder_us: int = HOUR_US) -> DatasetSpec:
    return dataset(
        "Clicks",
        {"user": STRING, "price": FLOAT, "at": DATETIME},
        version=version,
        history_us=history_us,
        sources=(hooked("clicks", Cdc.APPEND, disorder_us),),
        metadata=OWNER,
    )


def users(*, version: int = 1) -> DatasetSpec:
    return dataset(
        "Users",
        {"user": STRING, "age": INT, "since": DATETIME},
        keys=["user"],
        timestamp="since",
        version=version,
        history_us=HOUR_US,
        index=IndexSpec(online=True, offline=True),
        sources=(hooked("users", Cdc.UPSERT),),
        metadata=OWNER,
    )


def spend(*, version: int = 1, above: float = 1.0, window_us: int = HOUR_US) -> DatasetSpec:
    predicate = Binary(op=BinaryOp.GT, left=Ref(name="price"), right=Literal(value=above, dtype=FLOAT))
    return dataset(
        "Spend",
        {"user": STRING, "spent": FLOAT, "at": DATETIME},
        keys=["user"],
        version=version,
        history_us=HOUR_US,
        index=IndexSpec(online=True, offline=True),
        pipelines=(
            PipelineSpec(
                name="sum_up",
                inputs=("Clicks",),
                operator=Aggregate(
                    # The dedup keeps rows, so the pipeline needs a job.
                    of=Dedup(of=Filter(of=Input(dataset="Clicks"), predicate=predicate), by=("user", "price")),
                    keys=("user",),
                    aggregates=(
                        AggregateSpec(
                            function=AggregateFunction.SUM,
                            into="spent",
                            of="price",
                            window=ContinuousWindow(length_us=window_us),
                            default=None,
                            dtype=FLOAT,
                        ),
                    ),
                ),
                source_code=f"def sum_up(cls, clicks):\n    return clicks.filter(col('price') > {above})\n",
            ),
        ),
        metadata=OWNER,
    )


def shopper(*names: str, version: int = 0, code: str = "return spent > 5") -> FeaturesetSpec:
    """Return a featureset with the features `names`, which are some of user, spent, big and more."""
    types: dict[str, DataType] = {"user": STRING, "spent": optional(FLOAT), "big": INT, "more": INT}
    extractors: dict[str, Extractor] = {
        "spent": LookupExtractor(
            name="_lookup_Spend.spent",
            dataset="Spend",
            field="spent",
            inputs=("Shopper.user",),
            output="Shopper.spent",
        ),
        "big": PythonExtractor(
            name="is_big",
            inputs=("Shopper.spent",),
            outputs=("Shopper.big",),
            datasets=(),
            version=version,
            source_code=f"def is_big(cls, ts, spent):\n    {code}\n",
            pickled=b"not run here",
        ),
    }
    return FeaturesetSpec(
        name="Shopper",
        features=tuple(FeatureSpec(name=name, dtype=types[name]) for name in names),
        extractors=tuple(extractors[name] for name in names if name in extractors),
        metadata=OWNER,
    )
