"""`@dataset`, which turns a class body into a dataset."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from caraway.datasets.class_body import fields_of
from caraway.datasets.display import dataset_html
from caraway.datasets.fields import Field
from caraway.datasets.lookups import Lookup, lookup_function
from caraway.datasets.nodes import Node
from caraway.datasets.pipelines import Pipeline
from caraway.dtypes.annotations import spell
from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.graph.capture.captured import MEMBERS_ATTRIBUTE, members_of
from caraway.graph.operators import Dedup, Input
from caraway.graph.runtime import DatasetHandle, bound_member
from caraway.graph.schemas import schema_of_dataset
from caraway.graph.sources import SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, IndexSpec, Metadata
from caraway.graph.trees import is_terminal
from caraway.lib.expectations import expectations_of
from caraway.lib.metadata import documented, get_metadata, module_owner

# `@source` and `@sink` store their connectors in these attributes: of the class if the decorator stands below
# `@dataset`, and of the dataset if it stands above.
SOURCE_FIELD = "__caraway_data_sources__"
SINK_FIELD = "__caraway_data_sinks__"
FOREVER_RETENTION = "forever"


class _Connector(Protocol):
    """A connector with the arguments of the `@source` or `@sink` that attached it to the dataset."""

    id: tuple[str, ...]

    def identifier(self) -> str: ...

    def source_spec(self, dataset: DatasetSpec) -> SourceSpec: ...

    def sink_spec(self, dataset: DatasetSpec) -> SinkSpec: ...


class Dataset(Node):
    """A dataset: columns, keys, sources, and the operators of a pipeline as methods."""

    def __init__(self, spec: DatasetSpec, body: type) -> None:
        super().__init__(Input(dataset=spec.name), schema_of_dataset(spec))
        self._name = self.__name__ = spec.name
        self.__qualname__ = body.__qualname__
        self._spec = spec
        self._module = body.__module__
        self._fields = {f.name: Field(self, f) for f in spec.fields}
        self._lookup = lookup_function(self._handle(), spec.keys)
        vars(self)[MEMBERS_ATTRIBUTE] = {
            name: member
            for name, member in vars(body).items()
            if not name.startswith("__") and name not in self._fields and not isinstance(member, Pipeline)
        }

    def __class_getitem__(cls, name: Any) -> Any:
        return name

    def __getattr__(self, name: str) -> Field:
        fields: dict[str, Field] = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        members = members_of(self)
        if name in members:
            return cast("Field", bound_member(self, members[name]))
        raise AttributeError(
            f"dataset {self.__dict__.get('_name')} has no field {name}{meant(name, fields)}; "
            f"fields: {', '.join(fields)}"
        )

    def __repr__(self) -> str:
        return f"Dataset({self._name})"

    def _repr_html_(self) -> str:
        # Notebooks call the method of this name to show an object as HTML.
        metadata = documented(get_metadata(self) or self._spec.metadata, self)
        return dataset_html(self._spec, metadata, vars(self).get(SOURCE_FIELD, []))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled function holds a handle in place of the dataset, which suffices for lookups.
        handle = self._handle()
        return (DatasetHandle, (handle._name, handle._keys, handle._columns))  # noqa: SLF001 (every other name may be a column's)

    def _handle(self) -> DatasetHandle:
        return DatasetHandle(self._name, self._spec.keys, tuple(self._fields))

    def identify_rows(self) -> None:
        """Have pipelines take each event once, if the sources name the fields that identify one.

        Raises:
            DefinitionError: A field is no value column, or the sources name different fields.
        """
        sources: list[_Connector] = vars(self).get(SOURCE_FIELD, [])
        by = sources[0].id if sources else ()
        for source in sources:
            label = f"dataset {self._name}, source {source.identifier()}"
            if unknown := [name for name in source.id if name not in self._schema.values]:
                raise DefinitionError(
                    f"{label}: id names {', '.join(unknown)}{meant(unknown[0], self._schema.values)}; possible: "
                    f"{', '.join(self._schema.values)}"
                )
            if source.id != by:
                raise DefinitionError(
                    f"{label}: its id is {', '.join(source.id) or 'none'}, and that of another source of the dataset "
                    f"{', '.join(by) or 'none'}; all must have the same"
                )
        rows = Input(dataset=self._name)
        self._operator = Dedup(of=rows, by=by) if by else rows

    def complete(self, body: type) -> None:
        """Add the pipelines and expectations of the class body, whose functions get the dataset as `cls`."""
        built = [item.build(self, self._name) for item in vars(body).values() if isinstance(item, Pipeline)]
        if problems := [problem for pipeline in built for problem in pipeline.problems]:
            raise DefinitionTypeError(
                f"dataset {self._name}: the output of its pipelines is not what it declares: " + "; ".join(problems)
            )
        self._spec = replace(self._spec, pipelines=tuple(pipeline.spec for pipeline in built))
        self._spec = replace(self._spec, expectations=expectations_of(body, self))

    @property
    def fields(self) -> list[Field]:
        """The columns, in the order declared."""
        return list(self._fields.values())

    @property
    def key_fields(self) -> list[str]:
        """The names of the keys, in the order declared."""
        return list(self._spec.keys)

    @property
    def erase_key_fields(self) -> list[str]:
        """The names of the keys by which rows are erased, in the order declared."""
        return [f.name for f in self._spec.fields if f.erase_key]

    @property
    def timestamp_field(self) -> str:
        """The name of the timestamp."""
        return self._spec.timestamp

    @property
    def is_terminal(self) -> bool:
        """True if a pipeline ends in an aggregate over continuous windows; no pipeline can read such a dataset."""
        return any(is_terminal(p.operator) for p in self._spec.pipelines)

    @property
    def lookup(self) -> Lookup:
        """The function of lookups: `lookup(ts, key=Series, fields=[...])` returns a frame and the found rows."""
        return self._lookup

    @property
    def node_spec(self) -> DatasetSpec:
        """The definition without sources, sinks and owner, which later decorators add."""
        return self._spec

    def fqn(self) -> str:
        """Return the dataset's name."""
        return self._name

    def to_spec(self) -> DatasetSpec:
        """Return the definition as a value, with the metadata, sources and sinks that other decorators added.

        Raises:
            CommitError: A source or sink is impossible for this dataset.
            CommitTypeError: A part of a source or sink is of a wrong type.
        """
        metadata = documented(get_metadata(self) or self._spec.metadata, self)
        owner = metadata.owner or module_owner(self._module)
        sources: list[_Connector] = vars(self).get(SOURCE_FIELD, [])
        sinks: list[_Connector] = vars(self).get(SINK_FIELD, [])
        return replace(
            self._spec,
            metadata=replace(metadata, owner=owner),
            sources=tuple(connector.source_spec(self._spec) for connector in sources),
            sinks=tuple(connector.sink_spec(self._spec) for connector in sinks),
        )

    def add_index(self, index: IndexSpec) -> None:
        """Add an index, as `@index` does."""
        if self._spec.index is not None:
            raise DefinitionError(f"dataset {self._name} is indexed already; give one @index, or index= in @dataset")
        _require_keys(self._name, self._spec.keys)
        self._spec = replace(self._spec, index=index)


if TYPE_CHECKING:

    class DatasetClass(Dataset, type):
        """The type that `caraway.integrations.mypy` gives a class below `@dataset`: dataset and class."""


@overload
def dataset(cls: type) -> Dataset: ...
@overload
def dataset(
    *,
    version: int = 1,
    history: str = "2y",
    index: bool = False,
    online: bool | None = None,
    offline: bool | None = None,
) -> Callable[[type], Dataset]: ...
def dataset(
    cls: type | None = None,
    *,
    version: int = 1,
    history: str = "2y",
    index: bool = False,
    online: bool | None = None,
    offline: bool | None = None,
) -> Dataset | Callable[[type], Dataset]:
    """Convert an annotated class to a dataset.

    Args:
        cls: The class, if the decorator stands bare.
        version: The version, which must rise when the definition changes.
        history: The time for which rows are kept, a duration.
        index: Serve lookups at the present (online) and at any past time (offline); the dataset needs keys.
        online: Without `index`, True serves lookups at the present only. With `index`, False turns them off.
        offline: Without `index`, True serves lookups at any past time only. With `index`, False turns them off.

    Raises:
        DefinitionError: The class can't be a dataset; the message names the field and what would be right.
        DefinitionTypeError: A part of the definition is of a wrong type.
    """
    # Annotations of the class that are strings may refer to local names of the function that defines the class.
    local_names = sys._getframe(1).f_locals  # noqa: SLF001 (no public function returns them)

    def decorate(body: type) -> Dataset:
        return _make(body, local_names, version, history, (index, online, offline))

    return decorate if cls is None else decorate(cls)


@overload
def index(obj: Dataset) -> Dataset: ...
@overload
def index(
    *, type: str = "primary", online: bool = True, offline: str | None = FOREVER_RETENTION
) -> Callable[[Dataset], Dataset]: ...
def index(
    obj: Dataset | None = None,
    type: str = "primary",
    online: bool = True,
    offline: str | None = FOREVER_RETENTION,
) -> Dataset | Callable[[Dataset], Dataset]:
    """Serve lookups of a dataset; the decorator stands above `@dataset`.

    Args:
        obj: The dataset, if the decorator stands bare.
        type: "primary": by the keys.
        online: Serve lookups at the present.
        offline: "forever" to serve lookups at any time, None not to.

    Raises:
        DefinitionError: The object is no dataset, has no keys or is indexed already, or an argument has another value.
    """
    if type != "primary":
        raise DefinitionError(f'index: the type is "primary", not {type!r}')
    if offline not in (None, FOREVER_RETENTION):
        raise DefinitionError(f'index: offline is "forever" or None, not {offline!r}')
    spec = IndexSpec(online=bool(online), offline=offline == FOREVER_RETENTION)

    def decorate(found: Any) -> Dataset:
        if not isinstance(found, Dataset):
            raise DefinitionError(f"@index goes above @dataset, onto a dataset, not {spell(found)}")
        found.add_index(spec)
        return found

    return decorate if obj is None else decorate(obj)


def _make(
    body: type, local_names: dict[str, Any], version: int, history: str, flags: tuple[bool, bool | None, bool | None]
) -> Dataset:
    if not isinstance(body, type):
        raise DefinitionTypeError(f"@dataset goes onto a class, not {type(body).__name__} {body!r}")
    name = body.__name__
    where = f"dataset {name}"
    if isinstance(version, bool) or not isinstance(version, int):
        raise DefinitionTypeError(f"{where}: the version is an int, not {version!r}")
    try:
        history_us = parse_duration(history)
    except (DefinitionError, DefinitionTypeError) as error:
        raise type(error)(f"{where}: history: {error}") from None
    fields = fields_of(body, local_names)
    spec = DatasetSpec(
        name=name,
        version=version,
        history_us=history_us,
        fields=fields,
        index=_index(name, tuple(f.name for f in fields if f.key), *flags),
        metadata=get_metadata(body) or Metadata(),
    )
    made = Dataset(spec, body)
    made.__doc__ = body.__doc__
    for name in (SOURCE_FIELD, SINK_FIELD):
        vars(made)[name] = list(vars(body).get(name, ()))
    made.identify_rows()
    made.complete(body)
    return made


def _index(name: str, keys: tuple[str, ...], both: bool, online: bool | None, offline: bool | None) -> IndexSpec | None:
    if both and (online or offline):
        raise DefinitionError(f"dataset {name}: with index=True, online and offline can only be switched off (False)")
    if not both and online and offline:
        raise DefinitionError(f"dataset {name}: online=True and offline=True together are index=True")
    if both:
        spec = IndexSpec(online=online is None, offline=offline is None)
    elif online or offline:
        spec = IndexSpec(online=bool(online), offline=bool(offline))
    else:
        return None
    _require_keys(name, keys)
    return spec


def _require_keys(name: str, keys: tuple[str, ...]) -> None:
    if not keys:
        raise DefinitionError(f"dataset {name} can't be indexed: it has no keys; mark one with field(key=True)")
