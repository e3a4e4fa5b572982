"""The HTML by which notebooks show a dataset."""

from collections.abc import Sequence

from caraway.dtypes.durations import print_duration
from caraway.dtypes.types import type_name
from caraway.graph.specs import DatasetSpec, FieldSpec, Metadata
from caraway.process.displays import Table, html


def dataset_html(spec: DatasetSpec, metadata: Metadata, sources: Sequence[object]) -> str:
    """Return fields and pipelines of a dataset as HTML."""
    facts = [
        "dataset",
        f"version {spec.version}",
        f"history {print_duration(spec.history_us)}",
        _index(spec),
        f"{len(sources)} sources" if len(sources) > 1 else "1 source" if sources else "",
        metadata.owner,
        ", ".join(metadata.tags),
        metadata.description,
    ]
    fields = [(field.name, type_name(field.dtype), _role(field), field.metadata.description) for field in spec.fields]
    pipelines = [(p.name, ", ".join(p.inputs), ", ".join(p.env), p.metadata.description) for p in spec.pipelines]
    return html(
        spec.name,
        facts,
        [
            Table("fields", ("name", "type", "", "description"), fields),
            Table("pipelines", ("name", "inputs", "env", "description"), pipelines),
        ],
    )


def _index(spec: DatasetSpec) -> str:
    if spec.index is None:
        return ""
    kinds = [kind for kind, has in (("online", spec.index.online), ("offline", spec.index.offline)) if has]
    return f"index {' and '.join(kinds)}"


def _role(field: FieldSpec) -> str:
    roles = {"key": field.key, "erase key": field.erase_key, "timestamp": field.timestamp}
    return ", ".join(role for role, has in roles.items() if has)
