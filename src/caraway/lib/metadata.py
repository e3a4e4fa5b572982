"""Owners, descriptions and flags: `@meta`."""

import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from caraway.dtypes.annotations import STRUCT_ATTRIBUTE
from caraway.dtypes.structs import META_ATTRIBUTE, NO_META
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.drift import Drift
from caraway.graph.specs import Metadata

__all__ = [
    "Metadata",
    "desc",
    "documented",
    "get_meta_attr",
    "get_metadata",
    "meta",
    "module_owner",
    "set_meta_attr",
]

T = TypeVar("T")

_EMAIL = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+\.[A-Za-z0-9.-]+")


def metadata_of_arguments(
    owner: str = "",
    description: str = "",
    tags: Sequence[str] = (),
    *,
    deprecated: bool = False,
    deleted: bool = False,
    drift: Drift | None = None,
) -> Metadata:
    """Return the metadata for the arguments of `meta`, which are checked."""
    for name, value in (("owner", owner), ("description", description)):
        if not isinstance(value, str):
            raise DefinitionTypeError(f"meta: {name} is a str, not {value!r}")
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise DefinitionTypeError(f"meta: tags are a list of str, not {tags!r}")
    if owner and not _EMAIL.fullmatch(owner):
        raise DefinitionError(f'meta: owner "{owner}" is not an email address')
    if drift is not None:
        _check_drift(drift)
    return Metadata(
        owner=owner,
        description=description,
        tags=tuple(tags),
        deprecated=bool(deprecated),
        deleted=bool(deleted),
        drift=drift,
    )


def _check_drift(drift: Drift) -> None:
    if not isinstance(drift, Drift):
        raise DefinitionTypeError(f"meta: drift is caraway.lib.Drift(psi=..., ks=...), not {drift!r}")
    for name in Drift.__dataclass_fields__:
        threshold = getattr(drift, name)
        if threshold is None:
            continue
        if not isinstance(threshold, (int, float)) or isinstance(threshold, bool):
            raise DefinitionTypeError(f"meta: drift: {name} is a number, not {threshold!r}")
        if not threshold >= 0:
            raise DefinitionError(f"meta: drift: {name} is a number from 0, not {threshold!r}")


class meta:  # noqa: N801 (a decorator)
    """Attach owner, description, tags and flags to a dataset, pipeline, featureset or extractor.

    `drift` has the thresholds of a featureset's features; features may have their own (docs/guides/monitoring.md).
    A dataset with `drift` is profiled, and its fields may have their own.
    """

    def __init__(
        self,
        owner: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        deprecated: bool = False,
        deleted: bool = False,
        *,
        drift: Drift | None = None,
    ) -> None:
        self.metadata = metadata_of_arguments(
            owner, description, tags, deprecated=deprecated, deleted=deleted, drift=drift
        )

    def __call__(self, obj: T) -> T:
        """Attach the metadata to `obj`, in place of any that it has.

        Raises `DefinitionError` if `obj` is a struct.
        """
        if isinstance(obj, type) and STRUCT_ATTRIBUTE in vars(obj):
            raise DefinitionError(f"struct {obj.__name__}: {NO_META}")
        setattr(obj, META_ATTRIBUTE, self.metadata)
        return obj


def get_metadata(obj: object) -> Metadata | None:
    """Return the metadata that `@meta` attached to an object itself."""
    found = getattr(obj, "__dict__", {}).get(META_ATTRIBUTE)
    return found if isinstance(found, Metadata) else None


def get_meta_attr(obj: object, name: str) -> Any:
    """Return one item of an object's metadata, None if it has none."""
    found = get_metadata(obj)
    return None if found is None else getattr(found, name)


def set_meta_attr(obj: object, name: str, value: object) -> None:
    """Set one item of an object's metadata.

    Raises:
        DefinitionError: The metadata has no such item, or the owner isn't an email address.
    """
    found = get_metadata(obj) or Metadata()
    items = {item: getattr(found, item) for item in Metadata.__dataclass_fields__}
    if name not in items:
        raise DefinitionError(f"meta: unknown item {name}; items: {', '.join(items)}")
    setattr(obj, META_ATTRIBUTE, metadata_of_arguments(**{**items, name: value}))


def documented(metadata: Metadata | None, *objects: object) -> Metadata:
    """Return metadata whose description is the docstring of the first object that has one, if it has none itself.

    Only an object's own docstring counts, not that of its type.
    """
    found = metadata or Metadata()
    if found.description:
        return found
    texts = (obj.__doc__ if inspect.isroutine(obj) else vars(obj).get("__doc__") for obj in objects)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return replace(found, description=inspect.cleandoc(text)) if text else found


def desc(obj: object) -> str:
    """Return the description of a field, feature, dataset, featureset, pipeline or extractor; empty if it has none.

    It is that of `@meta`; else the comment above a field or feature, and the docstring of anything else.
    """
    found = get_metadata(obj)
    if found is None and not isinstance(obj, type):
        # Features and extractors have an attribute `metadata`; that of an extractor is the metadata of its function or
        # feature.
        known = getattr(obj, "metadata", None)
        found = known if isinstance(known, Metadata) else None
    if found is None and not isinstance(obj, type) and callable(described := getattr(obj, "desc", None)):
        return str(described())
    return documented(found, *([obj] if hasattr(obj, "__dict__") else [])).description


def module_owner(module: str) -> str:
    """Return the owner that a module declares for its definitions as `__owner__`."""
    owner = getattr(sys.modules.get(module), "__owner__", "")
    return owner if isinstance(owner, str) else ""
