"""What definitions of all kinds share: metadata, inputs and outputs, helpers."""

from caraway.lib.buckets import bucketize
from caraway.lib.includes import includes
from caraway.lib.metadata import desc, meta
from caraway.lib.params import inputs, outputs

__all__ = ["bucketize", "desc", "includes", "inputs", "meta", "outputs"]
