"""The former place of data types; new code takes them from `caraway.dtypes`."""

from caraway.dtypes import Embedding, Window, between, oneof, regex, struct

__all__ = ["Embedding", "Window", "between", "oneof", "regex", "struct"]
