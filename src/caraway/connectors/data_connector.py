"""The base of all connectors: one table, topic, path or endpoint inside an external system."""

from datetime import datetime
from typing import Any, ClassVar

from caraway.connectors.data_source import DataSource, duration_us
from caraway.connectors.preproc import Eval, PreProcValue, Ref, WhereValue, constant
from caraway.connectors.sampling import Sample
from caraway.dtypes.instants import instant_us
from caraway.dtypes.types import BOOL
from caraway.errors import CommitError
from caraway.graph.capture.shipping import python_function
from caraway.graph.connectors import Connector
from caraway.graph.envs import EnvSelector, selector
from caraway.graph.sources import Cdc, Computed, Constant, SampleSpec, SinkSpec, SourceSpec
from caraway.graph.sources import Ref as RefSpec
from caraway.graph.specs import DatasetSpec

# The defaults of `every=`: the interval at which a source is polled, and the one at which a sink is written.
SOURCE_EVERY = "30m"
SINK_EVERY = "1h"


class DataConnector:
    """One table, topic, path or endpoint of a system, which `@source` and `@sink` take.

    The attributes below `data_source` are those of the decorators; they are unset on a connector that no decorator has
    taken yet.
    """

    #: True if the connector is polled for new rows; False if it gets them pushed.
    polled: ClassVar[bool] = False
    #: True if `@source` can read it.
    readable: ClassVar[bool] = True
    #: True if `@sink` can write to it.
    writable: bool = False
    #: True if a sink sends each change as it comes; False if it writes rows at an interval.
    sends_changes: ClassVar[bool] = False
    #: The interval at which a sink is written by default; None if changes are written as they come.
    sink_every: str | None = None
    #: True if columns of its records may be structs; `ref` can then name a part inside one.
    has_structs: bool = False

    def __init__(self, data_source: DataSource) -> None:
        self.data_source = data_source
        self.cdc: str | None = None
        self.every: str | None = None
        self.disorder: str | None = None
        self.since: datetime | None = None
        self.until: datetime | None = None
        self.envs: EnvSelector = None
        self.pre_proc: dict[str, PreProcValue] | None = None
        self.where: WhereValue | None = None
        self.sample: float | Sample | None = None
        self.bounded = False
        self.idleness: str | None = None
        self.max_future: str | None = None
        self.id: tuple[str, ...] = ()
        self.how: Any = None
        self.create: bool | None = None
        self.renames: dict[str, str] | None = None

    def identifier(self) -> str:
        """Return the connector's name for people."""
        return f"{self.data_source.identifier()}({self._inside()})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.identifier()}"

    def check_source(self, label: str) -> None:
        """Raise `DefinitionError` if `@source` can't read the connector with the settings that it has."""

    def check_sink(self, label: str) -> None:
        """Raise `DefinitionError` if `@sink` can't write to the connector with the settings that it has."""

    def spec(self) -> Connector:
        """Return the connector as a value, without the settings of the decorators."""
        raise NotImplementedError

    def _inside(self) -> str:
        raise NotImplementedError

    def source_spec(self, dataset: DatasetSpec) -> SourceSpec:
        """Return the source that `@source` defined for a dataset, as a value.

        Raises:
            CommitError: The value of cdc is unknown, or preproc has an impossible entry.
            CommitTypeError: A typed expression is declared as something else than its field.
        """
        where = f"dataset {dataset.name}, source {self.identifier()}"
        if self.cdc not in tuple(Cdc):
            raise CommitError(f"{where}: cdc is one of {', '.join(Cdc)}, not {self.cdc!r}")
        every = (self.every or SOURCE_EVERY) if self.polled else None
        return SourceSpec(
            connector=_spec(dataset, self),
            cdc=Cdc(self.cdc),
            disorder_us=duration_us(where, "disorder", self.disorder),
            every_us=_duration_us(where, "every", every),
            since_us=_instant_us(self.since),
            until_us=_instant_us(self.until),
            env=selector(self.envs, where),
            preproc=tuple(
                (name, self._made(f"{where}, preproc of {name}", name, value, dataset))
                for name, value in (self.pre_proc or {}).items()
            ),
            where=None if self.where is None else _condition(f"{where}, where", self.where),
            bounded=self.bounded,
            idleness_us=_duration_us(where, "idleness", self.idleness),
            sample=_sample_spec(self.sample),
            max_future_us=_duration_us(where, "max_future", self.max_future),
        )

    def sink_spec(self, dataset: DatasetSpec) -> SinkSpec:
        """Return the sink that `@sink` defined for a dataset, as a value."""
        where = f"dataset {dataset.name}, sink {self.identifier()}"
        every = self.every or self.sink_every
        return SinkSpec(
            connector=_spec(dataset, self),
            cdc=None if self.cdc is None else Cdc(self.cdc),
            every_us=_duration_us(where, "every", every),
            how=self.how,
            create=bool(self.create),
            renames=tuple((self.renames or {}).items()),
            since_us=_instant_us(self.since),
            until_us=_instant_us(self.until),
            env=selector(self.envs, where),
        )

    def _made(self, where: str, name: str, value: PreProcValue, dataset: DatasetSpec) -> RefSpec | Constant | Computed:
        if isinstance(value, Ref):
            return value.spec()
        if isinstance(value, Eval):
            return value.spec(where, next((f.dtype for f in dataset.fields if f.name == name), None))
        return constant(where, value)


def _spec(dataset: DatasetSpec, connector: DataConnector) -> Connector:
    try:
        return connector.spec()
    except CommitError as error:
        raise CommitError(f"dataset {dataset.name}: {error}") from None


def _condition(where: str, value: WhereValue) -> Computed:
    if isinstance(value, Eval):
        return value.spec(where, BOOL)
    return Computed(by=python_function(where, value))


def _sample_spec(sample: float | Sample | None) -> SampleSpec | None:
    if sample is None:
        return None
    return (
        SampleSpec(rate=sample.rate, using=tuple(sample.using))
        if isinstance(sample, Sample)
        else SampleSpec(rate=sample)
    )


def _duration_us(where: str, what: str, duration: str | None) -> int | None:
    return None if duration is None else duration_us(where, what, duration)


def _instant_us(at: datetime | None) -> int | None:
    return None if at is None else instant_us(at)
