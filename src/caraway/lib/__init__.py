"""Decorators and functions for definitions of all kinds: metadata, inputs and outputs, helpers, expectations."""

from caraway.graph.drift import Drift
from caraway.lib import expect_functions, secrets
from caraway.lib.buckets import bucketize
from caraway.lib.expect_functions import *
from caraway.lib.expectations import expectations
from caraway.lib.includes import includes
from caraway.lib.metadata import desc, meta
from caraway.lib.params import inputs, outputs

__all__ = [
    "Drift",
    "bucketize",
    "desc",
    "expectations",
    "includes",
    "inputs",
    "meta",
    "outputs",
    "secrets",
]
__all__ += expect_functions.__all__
