"""The references of an extractor: features by full name, datasets by name."""

from caraway.graph.specs import AliasExtractor, ExpressionExtractor, Extractor, LookupExtractor, PythonExtractor


def outputs_of(extractor: Extractor) -> tuple[str, ...]:
    """Return the full names of the features that an extractor computes."""
    return extractor.outputs if isinstance(extractor, PythonExtractor) else (extractor.output,)


def inputs_of(extractor: Extractor) -> tuple[str, ...]:
    """Return the full names of the features that an extractor needs."""
    return (extractor.input,) if isinstance(extractor, AliasExtractor) else extractor.inputs


def datasets_of(extractor: Extractor) -> tuple[str, ...]:
    """Return the names of the datasets that an extractor looks up."""
    match extractor:
        case LookupExtractor():
            return (extractor.dataset,)
        case PythonExtractor():
            return extractor.datasets
        case AliasExtractor() | ExpressionExtractor():
            return ()


def featureset_of(feature: str) -> str:
    """Return the featureset's name in a feature's full name."""
    return feature.partition(".")[0]
