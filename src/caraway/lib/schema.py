"""The former module of data types and extractors' decorators; new code imports them where they are defined."""

# This module is kept for compatibility only.
from caraway.dtypes import Embedding, Window, between, oneof, regex, struct
from caraway.lib.params import inputs, outputs

__all__ = ["Embedding", "Window", "between", "inputs", "oneof", "outputs", "regex", "struct"]
