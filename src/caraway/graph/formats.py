"""The formats in which connectors read rows: the values of cdc, and the readers and libraries of files and tables.

Tables that are made of files are read in the same way in whichever store they are, so the connectors of all stores
(`caraway.graph.connectors`) share what is here.
"""

from collections.abc import Mapping
from importlib.util import find_spec

from caraway.graph.systems import AzureSystem, CSVFormat, GCSSystem

# The values that `cdc=` may have: for every system, and for systems whose records may be Debezium's change envelopes.
PLAIN_CDC = frozenset({"append", "upsert"})
ENVELOPE_CDC = PLAIN_CDC | {"debezium"}
# The reader of files, and the reader of each table format; a reader is the same for every store that holds the files.
FILES_READER = "caraway.dataplane.sources.files.reader:FilesReader"
TABLE_READERS: Mapping[str, str] = {
    "delta": "caraway.dataplane.sources.delta:DeltaReader",
    "hudi": "caraway.dataplane.sources.hudi.reader:HudiReader",
    "iceberg": "caraway.dataplane.sources.iceberg.reader:IcebergReader",
}
# For each table format, the module that its reader imports, and the extra of Caraway that installs the module.
TABLE_LIBRARIES: Mapping[str | None, tuple[str, str]] = {
    "hudi": ("hudi", "hudi"),
    "iceberg": ("pyiceberg", "iceberg"),
}
# For each kind of store, the module that reading from it needs with any format, and the extra that installs the module.
STORE_LIBRARIES: Mapping[str, tuple[str, str]] = {
    GCSSystem.kind: ("google.cloud.storage", "gcs"),
    AzureSystem.kind: ("azure.storage.blob", "azure"),
}
# For each table format, the values of `cdc=` with which its tables can be read.
TABLE_CDC: Mapping[str, frozenset[str]] = {
    "delta": frozenset({"native"}),
    "hudi": PLAIN_CDC | {"native"},
    "iceberg": PLAIN_CDC | {"native"},
}


def unreadable_table(format_name: str | CSVFormat, suffix: str | None) -> str:
    """Return why files of a format can't be chosen by such a path; empty if they can."""
    if isinstance(format_name, str) and format_name in TABLE_READERS and suffix is not None:
        table = f"{'an' if format_name == 'iceberg' else 'a'} {format_name.capitalize()} table"
        return f"{table} is one folder; give it by prefix, or by a path without wildcards and times"
    return ""


def is_installed(module: str) -> bool:
    """Return whether a module of a library is there, without loading it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # `find_spec` raises this error if a package above the module is missing, such as `google` for
        # google.cloud.storage.
        return False
