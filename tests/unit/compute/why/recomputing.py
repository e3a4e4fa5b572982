"""The oracle of explanations: the value of a feature, computed from the listed parts alone."""

from collections.abc import Mapping

from caraway.compute.query.batch import Batch
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import CompilePython, QueryEngine
from caraway.compute.query.functions import compile_function
from caraway.compute.why.explaining import PartsReader
from caraway.compute.why.groups import GroupRead
from caraway.compute.why.lookups import aggregation_of, group_key
from caraway.compute.why.model import Listed, Lookup, Values, Why, time_of
from caraway.compute.why.parts import Held, HeldParts, Inputs
from caraway.compute.why.windows import NEVER
from caraway.dtypes.types import DataType, optional
from caraway.dtypes.values import from_json
from caraway.errors import InvalidInputError
from caraway.graph.operators import Aggregate
from caraway.graph.schemas import schema_of


def recompute(why: Why, catalog: Catalog, *, compile_python: CompilePython = compile_function) -> object:
    """Return the value of an explained feature, computed from the parts that its explanation lists.

    The definitions say how parts become values; every event and every version comes from the explanation. Only two
    facts of a lookup are taken as they are told: whether there was a row, and the time of its last change.

    Args:
        why: The explanation.
        catalog: The graph of the commit that it explains.
        compile_python: Decides where users' functions run.

    Returns:
        The value, as JSON has it.

    Raises:
        InvalidInputError: The explanation doesn't list all parts, or some are hidden.
    """
    reader = PartsReader()
    for step in why.steps:
        for lookup in step.lookups:
            _add(reader, lookup, catalog)
    plan = QueryEngine(catalog, reader, compile_python).plan(list(why.inputs), [why.feature])
    # The explanation shows bytes as base64, which is decoded here. As an input, the base64 text would be taken for the
    # bytes themselves.
    columns = {column.name: [_own_value(why.inputs[column.name], column.dtype)] for column in plan.plan.inputs}
    # With `past=False`, the datasets needn't have an offline index. The time and all rows are those of the explanation,
    # so nothing is read from an index.
    batch = Batch(columns, 1, [time_of(why.at)], past=False)
    plan.compute(batch)
    return plan.answer(batch)[why.feature][0]


def _add(reader: PartsReader, lookup: Lookup, catalog: Catalog) -> None:
    values = listed_values(lookup, catalog)
    key = tuple(values[name] for name in catalog.dataset(lookup.dataset).keys)
    reader.add(lookup.dataset, key, time_of(lookup.at), values, found=lookup.found)


def listed_values(lookup: Lookup, catalog: Catalog) -> Mapping[str, object]:
    """Return the key and the values of a lookup in stored form, computed from its listed parts; see `recompute`.

    Raises:
        InvalidInputError: The lookup doesn't list all parts, or some are hidden.
    """
    spec = catalog.dataset(lookup.dataset)
    types = {field.name: field.dtype for field in spec.fields}
    own = _stored(lookup.key, types)
    values = {**_stored(lookup.values, types), **own}
    if not lookup.found:
        return values
    if lookup.hidden is not None:
        raise InvalidInputError(f"parts of {lookup.dataset} are hidden: {lookup.hidden}")
    operator = aggregation_of(spec)
    if operator is None or lookup.parts is None:
        return {**values, **_version(lookup, types)}
    return {**values, **_aggregates(lookup, operator, catalog, tuple(own[name] for name in spec.keys))}


def _version(lookup: Lookup, types: Mapping[str, DataType]) -> Mapping[str, object]:
    met = lookup.met
    if met is None or met.row is None or met.deleted:
        raise InvalidInputError(f"the version of {lookup.dataset} isn't listed")
    row = _stored(met.row, types)
    if missing := [name for name in lookup.values if name not in row]:
        raise InvalidInputError(f"the version of {lookup.dataset} lacks {', '.join(missing)}")
    return {name: row[name] for name in lookup.values}


def _aggregates(lookup: Lookup, operator: Aggregate, catalog: Catalog, key: tuple[object, ...]) -> Mapping[str, object]:
    page = lookup.parts
    if page is None or len(page.items) < page.total:
        raise InvalidInputError(f"the explanation doesn't list all parts of {lookup.dataset}")
    before = schema_of(operator.of, catalog.datasets)
    records = [_held(item, before.columns, lookup.dataset) for item in page.items]
    _, window = group_key(catalog.dataset(lookup.dataset), key)
    max_event_time_us = 0 if lookup.max_event_time is None else time_of(lookup.max_event_time)
    at_us = time_of(lookup.at)
    read = GroupRead(operator, before, Inputs(HeldParts(records), max_event_time_us), at_us, window)
    return {spec.into: read.value(spec) for spec in operator.aggregates if spec.into in lookup.values}


def _held(item: Listed, types: Mapping[str, DataType], dataset: str) -> Held:
    if item.row is None:
        raise InvalidInputError(f"a row of {dataset} is hidden")
    ends = NEVER if item.ends is None else time_of(item.ends)
    return Held(time_us=time_of(item.event_time), row=_stored(item.row, types), end_us=ends)


def _own_value(value: object, dtype: DataType | None) -> object:
    """Return a value that an explanation shows in stored form; unchanged if its type isn't known."""
    return value if dtype is None else from_json(optional(dtype))(value)


def _stored(values: Values, types: Mapping[str, DataType]) -> dict[str, object]:
    return {name: _own_value(value, types[name]) for name, value in values.items()}
