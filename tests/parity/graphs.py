"""Random graphs and what happens to their sources: cases.

A case is made of a seed alone. A step that the graph's rules, the streaming engine or the in-process engine refuse is
left out, so that new operators take part as soon as they are streamed.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    StructType,
    optional,
)
from caraway.errors import CarawayError, InvalidInputError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Operator
from caraway.graph.plan.planner import plan_graph
from caraway.graph.schemas import datasets_read, schema_of
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, IndexSpec, Metadata, PipelineSpec
from caraway.graph.trees import is_terminal
from caraway.graph.validation.graphs import validate
from tests.parity.steps import Place, maker_of, start
from tests.parity.traces import Arrival, trace

TIME = "at"
OWNED = Metadata(owner="parity@example.com")
INDEXED = IndexSpec(online=True, offline=True)
KEYS: list[DataType] = [STRING, STRING, STRING, INT, BOOL, OneOfType(STRING, ("a", "b"))]
POINT = StructType("Point", (("x", INT), ("y", optional(FLOAT))))
_FREQUENT: list[DataType] = [INT, optional(INT), FLOAT, optional(FLOAT), STRING, optional(STRING)]
_RARE: list[DataType] = [
    BOOL,
    optional(BOOL),
    DATETIME,
    optional(DATETIME),
    DATE,
    DecimalType(2),
    optional(DecimalType(4)),
    ListType(INT),
    ListType(optional(STRING)),
    optional(ListType(FLOAT)),
    BYTES,
    MapType(INT),
    POINT,
    optional(POINT),
    EmbeddingType(2),
]
VALUES = [*_FREQUENT * 3, *_RARE]
RETENTION_US = 14 * 86_400 * 1_000_000
TRIES = 40
#: Errors of cases that don't fit: a choice of nothing, a wrong type, an operator that isn't streamed, a row that fails.
REFUSALS = (CarawayError, ValueError, TypeError, IndexError)


@dataclass(frozen=True)
class Case:
    """A graph, and what arrives at its sources, by dataset."""

    seed: int
    datasets: tuple[DatasetSpec, ...]
    traces: Mapping[str, tuple[Arrival, ...]]

    @property
    def graph(self) -> Graph:
        return Graph(datasets=self.datasets)

    def repeats(self, dataset: str) -> bool:
        """Return whether records of a source arrive more than once."""
        arrived = self.traces[dataset]
        return len({arrival.number for arrival in arrived}) < len(arrived)

    @property
    def derived(self) -> list[DatasetSpec]:
        return [spec for spec in self.datasets if spec.pipelines]


def case_of(seed: int) -> Case:
    """Make the case of a seed."""
    rng = Random(seed)
    for _ in range(TRIES):
        sources = [_source(rng, f"E{seed}", keyed=False)]
        sources += [_source(rng, f"{'TUV'[i]}{seed}", keyed=True, like=sources) for i in range(rng.randint(1, 2))]
        rows = rng.choice([20, 40, 80])
        case = Case(seed, tuple(sources), {spec.name: trace(rng, spec, rows) for spec in sources})
        for number in range(rng.randint(2, 3)):
            case = _with_derived(rng, case, f"D{number}x{seed}")
        if len(case.derived) >= 2:
            return case
    raise AssertionError(f"seed {seed} makes no graph: is everything refused?")


def oracle(case: Case, arrivals: Mapping[str, Sequence[Arrival]] | None = None) -> LocalEngine:
    """Write the arriving records to the in-process engine, each once.

    Raises:
        InvalidInputError: A pipeline fails.
    """
    engine = LocalEngine(case.datasets)
    for name, arrived in (arrivals or case.traces).items():
        once = {arrival.number: arrival for arrival in reversed(arrived)}
        engine.apply_changes(
            name, [SourceChange(time_us=a.time_us, row=a.row, delete=a.delete) for a in reversed(once.values())]
        )
    return engine


def _source(rng: Random, name: str, *, keyed: bool, like: Sequence[DatasetSpec] = ()) -> DatasetSpec:
    fields = []
    if keyed:
        # The keys have a type that the events have, so that a join is possible.
        possible = [f.dtype for f in like[0].fields if f.dtype in KEYS]
        keys = [rng.choice(possible) for _ in range(rng.choice([1, 1, 1, 2]))]
        fields = [FieldSpec(name=f"k{i}", dtype=dtype, key=True) for i, dtype in enumerate(keys)]
    else:
        fields = [FieldSpec(name=f"e{i}", dtype=rng.choice(KEYS)) for i in range(2)]
    prefix = name[0].lower()
    values = {f"{prefix}{i + 2}": rng.choice(VALUES) for i in range(rng.randint(2, 5))}
    return source_of(name, {f.name: f.dtype for f in fields}, values, keyed=keyed, time=f"{TIME}_{prefix}")


def source_of(
    name: str, keys: Mapping[str, DataType], values: Mapping[str, DataType], *, keyed: bool = True, time: str = TIME
) -> DatasetSpec:
    """Make a dataset with a source; without keys if `keyed` is false."""
    fields = [FieldSpec(name=column, dtype=dtype, key=keyed) for column, dtype in keys.items()]
    fields += [FieldSpec(name=column, dtype=dtype) for column, dtype in values.items()]
    fields.append(FieldSpec(name=time, dtype=DATETIME, timestamp=True))
    source = SourceSpec(
        connector=WebhookConnector(name="hook", endpoint=name, retention_us=RETENTION_US),
        cdc=Cdc.UPSERT if keyed else Cdc.APPEND,
        disorder_us=RETENTION_US,
    )
    return DatasetSpec(
        name=name,
        version=1,
        history_us=0,
        fields=tuple(fields),
        index=INDEXED if keyed else None,
        sources=(source,),
        metadata=OWNED,
    )


def with_dataset(case: Case, spec: DatasetSpec) -> Case:
    """Add a dataset to a case."""
    return replace(case, datasets=(*case.datasets, spec))


def _with_derived(rng: Random, case: Case, name: str) -> Case:
    """Add a dataset that is derived by some steps from one of those that are there."""
    specs = {spec.name: spec for spec in case.datasets}
    possible = [spec for spec in case.datasets if not _is_terminal(spec)]
    operator = start(rng.choice([*possible, *(spec for spec in possible if not spec.keys)]))
    wanted, turns = rng.randint(0, 4), rng.random() < 0.75

    def tried(longer: Operator) -> Case:
        return with_dataset(case, derived(longer, name, specs))

    def accepts(longer: Operator) -> bool:
        try:
            validate(tried(longer).graph)
            plan_graph(tried(longer).graph)
        except REFUSALS:
            return False
        return True

    made: Case | None = None
    for step in range(wanted + 1):
        for _ in range(TRIES):
            schema = schema_of(operator, specs)
            try:
                place = Place(rng, operator, schema, case.datasets, accepts)
                longer = maker_of(rng, schema, turn=turns and step == wanted)(place)
                check(tried(longer))
            except REFUSALS:
                continue
            operator, made = longer, tried(longer)
            break
    return case if made is None else made


def _is_terminal(spec: DatasetSpec) -> bool:
    return any(is_terminal(pipeline.operator) for pipeline in spec.pipelines)


def derived(operator: Operator, name: str, specs: Mapping[str, DatasetSpec]) -> DatasetSpec:
    """Make the dataset that an operator gives."""
    schema = schema_of(operator, specs)
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in schema.columns.items()
    )
    return DatasetSpec(
        name=name,
        version=1,
        history_us=0,
        fields=fields,
        index=INDEXED if schema.keys else None,
        pipelines=(PipelineSpec(name="made", inputs=datasets_read(operator), operator=operator),),
        metadata=OWNED,
    )


def check(case: Case) -> None:
    """Raise if a graph isn't valid, isn't streamed, or fails for its rows.

    Raises:
        CarawayError: It is so.
    """
    validate(case.graph)
    plan_graph(case.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = oracle(case)
        for spec in case.derived:
            if len(engine.rows(spec.name)) > 20_000:
                raise InvalidInputError("more rows than a test takes time for")
