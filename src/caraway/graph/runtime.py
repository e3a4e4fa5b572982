"""The environment of a running user's function: datasets to look up, its featureset, and providers of values.

A definition that a pickled function refers to is pickled as a handle with its name and shape. The process that runs the
function (a query server, the in-process engine) sets the provider that answers lookups.

The pickles of stored definitions name this module, so it must keep its name.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from caraway.errors import DefinitionError, meant
from caraway.process.secrets.provider import SecretProvider


class LookupProvider(Protocol):
    """Answers `Dataset.lookup`."""

    def __call__(
        self, dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]
    ) -> tuple[pd.DataFrame, "pd.Series[bool]"]:
        """Return the rows that hold for the keys at each time, and which of them were found.

        Args:
            dataset: Name of the dataset.
            ts: A time for each row, UTC.
            keys: The keys, one column each, in declared order; index 0..n-1 as `ts`.
            fields: The columns wanted; all if empty.
        """
        ...


lookup_provider: ContextVar[LookupProvider | None] = ContextVar("caraway_lookup_provider", default=None)

# The provider that answers `secrets.get(name)`; None while no user's function runs.
secret_provider: ContextVar[SecretProvider | None] = ContextVar("caraway_secret_provider", default=None)


def bound_member(owner: object, member: Any) -> Any:
    """Return a member of a class body as `owner.member` would be: a class method is bound to the owner."""
    if isinstance(member, classmethod):
        return member.__func__.__get__(owner)
    return member.__func__ if isinstance(member, staticmethod) else member


@dataclass(frozen=True)
class DatasetHandle:
    """A dataset as a running function sees it."""

    # The attributes begin with an underscore because any other name may be that of a column.
    _name: str
    _keys: tuple[str, ...]
    _columns: tuple[str, ...]
    _members: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def __name__(self) -> str:
        """The name of the dataset."""
        return self._name

    def lookup(
        self,
        ts: "pd.Series[Any]",
        *args: object,
        fields: Sequence[Any] | None = (),
        **keys: "pd.Series[Any]",
    ) -> tuple[pd.DataFrame, "pd.Series[bool]"]:
        """Return the rows that hold for the keys at each time of `ts`, and which of them were found.

        Args:
            ts: A time for each row.
            args: Nothing: keys go by name.
            fields: The columns wanted, in order; all if empty.
            keys: A Series for each key of the dataset.

        Raises:
            DefinitionError: The arguments don't fit the dataset.
            NotImplementedError: This process has no provider of lookups; only extractors have one.
        """
        wanted = self._check(ts, args, keys, fields)
        provider = lookup_provider.get()
        if provider is None:
            raise NotImplementedError(
                f"lookup of {self._name}: lookups are answered inside extractors; use client.lookup(...) from outside"
            )
        frame = pd.DataFrame({key: keys[key].reset_index(drop=True) for key in self._keys})
        return provider(self._name, ts.reset_index(drop=True), frame, wanted)

    def __getattr__(self, attribute: str) -> Any:
        # The attribute of a column is its name, so code that uses `Dataset.column` as text gets the same text as in the
        # definition.
        if attribute in self.__dict__.get("_columns", ()):
            return attribute
        members = self.__dict__.get("_members", {})
        if attribute in members:
            return bound_member(self, members[attribute])
        hint = meant(attribute, self.__dict__.get("_columns", ()))
        raise AttributeError(f"dataset {self.__dict__.get('_name')} has no field {attribute}{hint}")

    def _check(self, ts: Any, args: tuple[object, ...], keys: dict[str, Any], fields: Any) -> list[str]:
        where = f"lookup of {self._name}"
        names = ", ".join(self._keys)
        if not self._keys:
            raise DefinitionError(f"{where}: the dataset has no keys, so nothing can be looked up")
        if args:
            raise DefinitionError(f"{where}: keys go by name, as {names}=...; only ts is positional")
        if not isinstance(ts, pd.Series) or not pd.api.types.is_datetime64_any_dtype(ts.dtype):
            raise DefinitionError(f"{where}: ts is a Series of datetimes, not {_kind(ts)}")
        for key in self._keys:
            if key not in keys:
                raise DefinitionError(f"{where}: key {key} is missing; keys: {names}")
        for name, values in keys.items():
            if name not in self._keys:
                raise DefinitionError(f"{where}: {name} is no key; keys: {names}")
            if not isinstance(values, pd.Series):
                raise DefinitionError(f"{where}: key {name} is a Series, not {_kind(values)}")
            if len(values) != len(ts):
                raise DefinitionError(f"{where}: key {name} has {len(values)} rows, ts has {len(ts)}")
        if not isinstance(fields, (list, tuple, type(None))):
            raise DefinitionError(f"{where}: fields is a list of names, not {_kind(fields)}")
        wanted = [str(name) for name in fields or ()]
        for name in wanted:
            if name not in self._columns:
                hint = meant(name, self._columns)
                raise DefinitionError(f"{where}: unknown field {name}{hint}; fields: {', '.join(self._columns)}")
        return wanted


def _kind(value: object) -> str:
    return f"a Series of {value.dtype}" if isinstance(value, pd.Series) else type(value).__name__


@dataclass(frozen=True)
class FeatureHandle:
    """A feature as a running function sees it: its text is the bare name."""

    featureset_name: str
    name: str

    @property
    def fqn_(self) -> str:
        """Full name."""
        return self.fqn()

    def fqn(self) -> str:
        """Return the full name."""
        return f"{self.featureset_name}.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.fqn()


@dataclass(frozen=True)
class FeaturesetHandle:
    """A featureset as a running function sees it, as `cls` or by name: its features and helper functions."""

    # The attributes begin with an underscore because any other name may be that of a feature.
    _name: str
    _features: tuple[str, ...]
    _members: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def __name__(self) -> str:
        """The name of the featureset."""
        return self._name

    def __getattr__(self, attribute: str) -> Any:
        state = self.__dict__
        if attribute in state.get("_features", ()):
            return FeatureHandle(self._name, attribute)
        members = state.get("_members", {})
        if attribute in members:
            return bound_member(self, members[attribute])
        hint = meant(attribute, (*state.get("_features", ()), *members))
        raise AttributeError(f"featureset {state.get('_name')} has no feature or helper {attribute}{hint}")


@dataclass(frozen=True)
class ShippedExtractor:
    """The content of `PythonExtractor.pickled`: it is called as the function itself, `(cls, ts, *series)`.

    `cls` may be None, for the extractor's own class.
    """

    function: Callable[..., Any]
    namespace: FeaturesetHandle

    def __call__(self, cls: object, ts: "pd.Series[Any]", *series: "pd.Series[Any]") -> Any:
        """Run the user's function."""
        return self.function(self.namespace if cls is None else cls, ts, *series)
