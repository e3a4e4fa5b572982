"""What sources make of their payload: preproc, where and sample against the fields of the dataset."""

from collections.abc import Mapping

from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    INT,
    DataType,
    base_type,
    is_optional,
    strip_optional,
    type_name,
)
from caraway.dtypes.values import cast
from caraway.errors import (
    CommitError,
    CommitTypeError,
    DefinitionError,
    DefinitionTypeError,
    InvalidExprException,
    InvalidInputError,
)
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import Node
from caraway.expr.printer import print_node
from caraway.graph.connectors import identifier
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Computed, Constant, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec
from caraway.graph.validation_scope import Scope


def sources_fit(scope: Scope) -> None:
    """What sources make are fields of the dataset, of their types; rows are chosen by what there is."""
    for dataset in scope.graph.datasets:
        for source in dataset.sources:
            where = f"source {identifier(source.connector)} of dataset {dataset.name}"
            _check_preproc(where, dataset, source)
            _check_where(where, dataset, source)
            _check_sample(where, dataset, source)


def _check_preproc(where: str, dataset: DatasetSpec, source: SourceSpec) -> None:
    types = {f.name: f.dtype for f in dataset.fields}
    for name, made in source.preproc:
        if name not in types:
            raise CommitError(f"{where}: preproc makes {name}, which is no field; fields: {', '.join(types)}")
        match made:
            case Ref():
                continue
            case Constant():
                _check_constant(f"{where}: preproc of {name}", made, types[name])
            case Computed(by=PythonFunction()) | Computed():
                if name == dataset.timestamp:
                    raise CommitError(
                        f"{where}: preproc computes {name}, the timestamp; use ref(...) or a constant for it"
                    )
                if not isinstance(made.by, PythonFunction):
                    _check_computed(f"{where}: preproc of {name}", made.by, {**types, **dict(made.schema)}, types[name])


def _check_constant(where: str, constant: Constant, wanted: DataType) -> None:
    base = base_type(wanted)
    # An int stands for an instant as an epoch.
    if constant.dtype != base and not (constant.dtype == INT and base == DATETIME):
        raise CommitError(
            f"{where}: the constant {constant.value!r} is {type_name(constant.dtype)}, the field {type_name(wanted)}"
        )
    if constant.dtype == base:
        try:
            cast(strip_optional(wanted))(constant.value)
        except InvalidInputError as error:
            raise CommitError(f"{where}: the constant {constant.value!r} doesn't fit: {error}") from None


def _check_computed(where: str, node: Node, schema: Mapping[str, DataType], wanted: DataType) -> None:
    found = _inferred(where, node, schema)
    if found != wanted:
        spelled = "null" if found is None else type_name(found)
        raise CommitTypeError(
            f"{where}: {print_node(node)} is {spelled}, but the field is {type_name(wanted)}; the types must be equal"
        )


def _inferred(where: str, node: Node, schema: Mapping[str, DataType]) -> DataType | None:
    try:
        return infer_nullable(node, schema)
    except DefinitionTypeError as error:
        raise CommitTypeError(f"{where}: {error}") from error
    except (DefinitionError, InvalidExprException) as error:
        raise CommitError(f"{where}: {error}") from error


def _check_where(where: str, dataset: DatasetSpec, source: SourceSpec) -> None:
    if source.where is None:
        return
    types = {f.name: f.dtype for f in dataset.fields}
    for name, dtype in source.where.schema:
        if name in types and types[name] != dtype:
            raise CommitTypeError(
                f"{where}: where declares {name} as {type_name(dtype)}, but the field is {type_name(types[name])}"
            )
    if isinstance(source.where.by, PythonFunction):
        return
    found = _inferred(f"{where}: where", source.where.by, {**types, **dict(source.where.schema)})
    if found is None or strip_optional(found) != BOOL or is_optional(found):
        spelled = "null" if found is None else type_name(found)
        raise CommitTypeError(f"{where}: where {print_node(source.where.by)} is {spelled}, not bool")


def _check_sample(where: str, dataset: DatasetSpec, source: SourceSpec) -> None:
    if source.sample is None:
        return
    made = {name for name, _ in source.preproc}
    names = [f.name for f in dataset.fields if not f.timestamp]
    for name in source.sample.using:
        if name not in names:
            found = "is the timestamp" if name == dataset.timestamp else "is no field"
            raise CommitError(f"{where}: sample uses {name}, which {found}; possible: {', '.join(names)}")
        if name in made:
            raise CommitError(f"{where}: sample uses {name}, which preproc makes; use a column of the payload")
    if not [name for name in source.sample.using or dataset.keys or names if name not in made]:
        raise CommitError(f"{where}: preproc makes all columns by which rows could be sampled; name others by using")


SOURCE_CHECKS = (sources_fit,)
