"""The former place of data types and of what describes extractors; new code takes them from where they are made."""

from caraway.dtypes import Embedding, Window, between, oneof, regex, struct
from caraway.lib.params import inputs, outputs

__all__ = ["Embedding", "Window", "between", "inputs", "oneof", "outputs", "regex", "struct"]
