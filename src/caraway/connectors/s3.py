"""S3: files in a bucket."""

import warnings
from typing import Any, ClassVar

from caraway.connectors.data_connector import SINK_EVERY, DataConnector
from caraway.connectors.data_source import ExternalSource, duration_us, named
from caraway.connectors.s3_paths import parse_path
from caraway.connectors.settings import Secretish, Settings
from caraway.errors import DefinitionAttributeError, DefinitionError, DefinitionTypeError
from caraway.graph.connectors import S3Connector as S3Spec
from caraway.graph.systems import CSVFormat, S3System

FORMATS = ("csv", "json", "parquet", "delta", "hudi", "iceberg")


class CSV(Settings):
    """Delimited text; without `headers` the first line has the names of the columns."""

    delimiter: str = ","
    headers: list[str] | None = None

    def _check(self) -> None:
        if len(self.delimiter) != 1:
            raise DefinitionError(f"CSV: the delimiter is one character, not {self.delimiter!r}")


class S3(ExternalSource):
    """S3; opened by a key with its secret, by a role, or as the worker that reads."""

    aws_access_key_id: Secretish | None = None
    aws_secret_access_key: Secretish | None = None
    role_arn: str | None = None

    spec_class: ClassVar = S3System
    renamed: ClassVar = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"}
    required_fields: ClassVar = 'its bucket: use .bucket("...", prefix="...")'

    def bucket(
        self,
        bucket_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: str | CSV | None = None,
        presorted: bool = False,
        spread: str | None = None,
    ) -> "S3Connector":
        """Return the objects of a bucket below `prefix`, or whose keys match `path`.

        Args:
            bucket_name: Name of the bucket.
            prefix: The literal beginning of the keys.
            path: Segments with `/` between them: plain ones, `*`, `**`, `*.ext` at the end, times as `%Y-%m-%d`.
            format: `CSV(...)` (the default), "json", "parquet", "delta", "hudi" or "iceberg".
            presorted: A hint that rows come in the order of their event times; results are the same without it.
            spread: The distance by which rows' event times may be outside of the time in their object's path.

        Raises:
            DefinitionError: A path, format or duration that isn't possible.
            DefinitionAttributeError: Not one of prefix and path, or a spread without path.
        """
        return S3Connector(self, "bucket", bucket_name, prefix, path, format, presorted, spread)


class StoredFiles(DataConnector):
    """The base of connectors of a folder, bucket or container; `word` is what the system calls it."""

    data_source: ExternalSource
    polled: ClassVar = True
    formats: ClassVar[tuple[str, ...]]
    structured: ClassVar[frozenset[str]]

    def __init__(
        self,
        data_source: ExternalSource,
        word: str,
        container_name: str,
        path_prefix: str | None,
        path: str | None,
        format: str | CSV | None,
        presorted: bool,
        spread: str | None,
    ) -> None:
        super().__init__(data_source)
        where = f"{data_source.kind} {data_source.name}"
        self._word = word
        self.container_name = named(where, f"{word}_name", container_name)
        where = f"{where}, {word} {container_name}"
        self.format = checked_format(where, format, self.formats)
        self.has_structs = self.format in self.structured
        self.presorted = presorted
        self.path_prefix, self.path_suffix, is_temporal = selection(where, path_prefix, path)
        self.spread = spread
        check_spread(where, spread, path, is_temporal)

    def _inside(self) -> str:
        return f"{self._word}={self.container_name},prefix={self.path_prefix}"

    def _stored(self) -> dict[str, Any]:
        """Return what both kinds of values have of the files."""
        return {
            "system": self.data_source.stored_system(),
            "prefix": self.path_prefix,
            "suffix": self.path_suffix or None,
            "format": stored_format(self.format),
            "presorted": self.presorted,
            "spread_us": None if self.spread is None else duration_us(self.identifier(), "spread", self.spread),
        }

    def check_source(self, label: str) -> None:
        """Check that a Delta table is read by its own changes."""
        if self.format == "delta" and self.cdc != "native":
            raise DefinitionError(f'{label}: a Delta table is read with cdc="native", not {self.cdc!r}')


class S3Connector(StoredFiles):
    """Objects of a bucket."""

    data_source: S3
    formats: ClassVar = FORMATS
    structured: ClassVar = frozenset({"json"})
    writable = True
    sink_every = SINK_EVERY

    def check_sink(self, label: str) -> None:
        """Check that one Delta table is written, by the identity of the worker."""
        if self.format != "delta":
            raise DefinitionError(f'{label}: the format is "delta", not {self.format!r}')
        if self.path_suffix:
            raise DefinitionError(
                f"{label}: a sink writes one table, so path has no wildcard and no time; give the beginning of the "
                "table's keys as prefix="
            )
        keys = ("aws_access_key_id", "aws_secret_access_key", "role_arn")
        if there := [name for name in keys if getattr(self.data_source, name, None) is not None]:
            raise DefinitionError(f"{label}: S3 is written as the worker that writes; leave {', '.join(there)} out")

    def spec(self) -> S3Spec:
        """Return the objects as a value."""
        return S3Spec(bucket=self.container_name, **self._stored())


def stored_format(given: str | CSV) -> str | CSVFormat:
    """Return a format as a value."""
    if isinstance(given, CSV):
        return CSVFormat(delimiter=given.delimiter, headers=None if given.headers is None else tuple(given.headers))
    return given


def checked_format(where: str, given: object, formats: tuple[str, ...]) -> str | CSV:
    """Return a format of files, CSV if none is given.

    Raises:
        DefinitionError: The format is none of those that are possible.
    """
    if given is None or given == "csv":
        return CSV()
    if isinstance(given, CSV) or (isinstance(given, str) and given in formats):
        return given
    raise DefinitionError(f"{where}: the format is CSV(...) or one of {', '.join(formats)}, not {given!r}")


def check_spread(where: str, spread: str | None, path: str | None, is_temporal: bool) -> None:
    """Check the spread of rows' times around the time in a path, and warn if the path tells none.

    Raises:
        DefinitionError: The spread is no duration.
        DefinitionAttributeError: There is no path.
    """
    if spread is None:
        return
    if not path:
        raise DefinitionAttributeError(f"{where}: spread needs path, whose time it is about")
    duration_us(where, "spread", spread)
    if not is_temporal:
        warnings.warn(f"{where}: spread has no effect: path {path!r} tells no time", stacklevel=4)


def selection(where: str, prefix: str | None, path: str | None) -> tuple[str, str, bool]:
    """Return the prefix and the rest of the path that selects files, and whether the path tells a time.

    Raises:
        DefinitionError: A path that isn't possible.
        DefinitionAttributeError: Not one of prefix and path.
        DefinitionTypeError: Either of them is no text.
    """
    for name, value in (("prefix", prefix), ("path", path)):
        if value is not None and not isinstance(value, str):
            raise DefinitionTypeError(f"{where}: {name} is a str, not {type(value).__name__} {value!r}")
    if prefix and path:
        raise DefinitionAttributeError(f"{where}: give prefix or path, not both")
    if path:
        try:
            found = parse_path(path)
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from None
        return found.prefix, found.suffix, found.is_temporal
    if not prefix:
        raise DefinitionAttributeError(f"{where}: give prefix or path, to say which objects are read")
    if "*" in prefix:
        raise DefinitionError(f"{where}: prefix {prefix!r} is taken as it stands; for wildcards use path=")
    return prefix, "", False
