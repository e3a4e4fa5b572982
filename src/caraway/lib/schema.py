"""The former module of data types and extractors' decorators; new code imports them where they are defined."""

# The module remains for programs that were written for its former name.
from caraway.dtypes import Embedding, Window, between, oneof, regex, struct
from caraway.lib.params import inputs, outputs

__all__ = ["Embedding", "Window", "between", "inputs", "oneof", "outputs", "regex", "struct"]
