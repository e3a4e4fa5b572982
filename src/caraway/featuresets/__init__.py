"""Featuresets: named values, and how they are computed."""

from caraway.featuresets.extractors import Extractor, ExtractorType, extractor
from caraway.featuresets.features import Feature, feature, is_valid_feature, is_valid_featureset
from caraway.featuresets.featureset import Featureset, featureset

__all__ = [
    "Extractor",
    "ExtractorType",
    "Feature",
    "Featureset",
    "extractor",
    "feature",
    "featureset",
    "is_valid_feature",
    "is_valid_featureset",
]
