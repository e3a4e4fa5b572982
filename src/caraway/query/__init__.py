"""Queries, which compute the values of wanted features from given ones.

The server, which reads an index, and the mock client, which reads the in-process engine, use the same executor.
"""

from caraway.dtypes.series import input_series, result_series
from caraway.query.batch import Batch, Columns
from caraway.query.catalog import Catalog
from caraway.query.datasets import DatasetLookups
from caraway.query.executor import Answer, CompiledPlan, QueryEngine, StoredColumns, parse_instants
from caraway.query.inputs import cast_input
from caraway.query.model import Instants, QueryReader, Reader, Rows

__all__ = [
    "Answer",
    "Batch",
    "Catalog",
    "Columns",
    "CompiledPlan",
    "DatasetLookups",
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
