"""The HTML by which notebooks show a featureset."""

from collections.abc import Sequence

from caraway.dtypes.types import type_name
from caraway.expr.printer import print_node
from caraway.featuresets.extractors import Extractor, GeneratedExtractor
from caraway.featuresets.features import Feature
from caraway.graph.specs import AliasExtractor, ExpressionExtractor, LookupExtractor, Metadata
from caraway.process.displays import Table, html


def featureset_html(name: str, features: Sequence[Feature], extractors: Sequence[Extractor], metadata: Metadata) -> str:
    """Return the features of a featureset as HTML, each with its extractor."""
    # The outputs of extractors are full names, `Featureset.feature`.
    computed = {output: _computation(extractor) for extractor in extractors for output in extractor.outputs}
    rows = [
        (
            feature.name,
            type_name(feature.data_type),
            computed.get(feature.fqn(), "supplied by the caller"),
            feature.desc(),
        )
        for feature in features
    ]
    facts = ["featureset", metadata.owner, ", ".join(metadata.tags), metadata.description]
    return html(name, facts, [Table("", ("feature", "type", "computed by", "description"), rows)])


def _computation(extractor: Extractor) -> str:
    if not isinstance(extractor, GeneratedExtractor):
        return f"{extractor.name}({', '.join(extractor.inputs)})"
    match extractor.spec:
        case LookupExtractor() as spec:
            return f"{spec.dataset}.{spec.field} by {', '.join(spec.inputs)}"
        case AliasExtractor() as spec:
            return spec.input
        case ExpressionExtractor() as spec:
            return print_node(spec.expr)
