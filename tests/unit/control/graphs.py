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
    FieldSpec,
    IndexSpec,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.windows import ContinuousWindow

HOUR_US = 3_600_000_000
OWNER = Metadata(owner="test@example.com")


def clicks(*, version: int = 1, history_us: int = HOUR_US, disorder_us: int = HOUR_US) -> DatasetSpec:
    return DatasetSpec(
        name="Clicks",
        version=version,
        history_us=history_us,
        fields=(
            FieldSpec(name="user", dtype=STRING),
            FieldSpec(name="price", dtype=FLOAT),
            FieldSpec(name="at", dtype=DATETIME, timestamp=True),
        ),
        index=None,
        sources=(
            SourceSpec(
                connector=WebhookConnector(name="hook", endpoint="clicks", retention_us=0),
                disorder_us=disorder_us,
                cdc=Cdc.APPEND,
            ),
        ),
        metadata=OWNER,
    )


def users(*, version: int = 1) -> DatasetSpec:
    return DatasetSpec(
        name="Users",
        version=version,
        history_us=HOUR_US,
        fields=(
            FieldSpec(name="user", dtype=STRING, key=True),
            FieldSpec(name="age", dtype=INT),
            FieldSpec(name="since", dtype=DATETIME, timestamp=True),
        ),
        index=IndexSpec(online=True, offline=True),
        sources=(
            SourceSpec(
                connector=WebhookConnector(name="hook", endpoint="users", retention_us=0),
                disorder_us=HOUR_US,
                cdc=Cdc.UPSERT,
            ),
        ),
        metadata=OWNER,
    )


def spend(*, version: int = 1, above: float = 1.0, window_us: int = HOUR_US) -> DatasetSpec:
    predicate = Binary(op=BinaryOp.GT, left=Ref(name="price"), right=Literal(value=above, dtype=FLOAT))
    return DatasetSpec(
        name="Spend",
        version=version,
        history_us=HOUR_US,
        fields=(
            FieldSpec(name="user", dtype=STRING, key=True),
            FieldSpec(name="spent", dtype=FLOAT),
            FieldSpec(name="at", dtype=DATETIME, timestamp=True),
        ),
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
