"""Queries, which compute the values of wanted features from given ones.

The server, which reads an index, and the mock client, which reads the in-process engine, use the same executor.
"""

from typing import TYPE_CHECKING

from caraway.deferred import deferred
from caraway.dtypes.series import input_series, result_series
from caraway.query.batch import Batch, Columns
from caraway.query.catalog import Catalog
from caraway.query.datasets import DatasetLookups
from caraway.query.executor import Answer, CompiledPlan, QueryEngine, StoredColumns, parse_instants
from caraway.query.inputs import cast_input
from caraway.query.model import Instants, QueryReader, Reader, Rows

if TYPE_CHECKING:
    from caraway.query.isolation import FunctionPool
else:
    # Only servers run users' functions in processes of their own. `FunctionPool` imports polars, which is slow to load.
    __getattr__, __dir__ = deferred("caraway.query", {"FunctionPool": "caraway.query.isolation:FunctionPool"})

__all__ = [
    "Answer",
    "Batch",
    "Catalog",
    "Columns",
    "CompiledPlan",
    "DatasetLookups",
    "FunctionPool",
    "Instants",
    "QueryEngine",
    "QueryReader",
    "Reader",
    "Rows",
    "StoredColumns",
    "cast_input",
    "input_series",
    "parse_instants",
    "result_series",
]
