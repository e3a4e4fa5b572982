"""The settings, their defaults and their sources.

From strongest to weakest: arguments of `load_settings`, environment variables (`CARAWAY_KAFKA__HEAP_MB` sets
`kafka.heap_mb`), `caraway.toml` in the data folder, defaults.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from typing_extensions import override

from caraway.process.settings.connectors import ConnectorSettings, SinkSettings, SourcesSettings
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.index import IndexSettings
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.mistakes import DELIMITER as ENV_DELIMITER
from caraway.process.settings.mistakes import PREFIX as ENV_PREFIX
from caraway.process.settings.mistakes import explanations, unknown_variables
from caraway.process.settings.monitoring import (
    AlertSettings,
    DriftSettings,
    OpenLineageSettings,
    QualitySettings,
    SkewSettings,
    TracesSettings,
)
from caraway.process.settings.offline import ArchiveSettings, OfflineSettings
from caraway.process.settings.oidc import OidcSettings
from caraway.process.settings.section import FolderPath, Section, absolute
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.streams import FunctionSettings, JarsSettings, SparkSettings

FILE_NAME = "caraway.toml"
DEFAULT_DATA_DIR = Path("caraway-data")


def _postgres_url(url: str) -> str:
    if urlsplit(url).scheme not in {"postgresql", "postgres"}:
        raise ValueError("must look like postgresql://user:password@host:5432/database")
    return url


def _objects_url(url: str) -> str:
    return url if "://" in url else str(absolute(Path(url)))


class PostgresSettings(Section):
    """Postgres, which keeps the metadata.

    Attributes:
        url: `postgresql://user:password@host:port/database`; None starts an embedded server.
    """

    url: Annotated[str, AfterValidator(_postgres_url)] | None = None


class SecretsSettings(Section):
    """The store of secrets, and its keys.

    Attributes:
        key_file: The file with the deployment's keys, which is created if it doesn't exist; None: `secret.key` in the
            data folder. Servers and engines of one deployment need the same file.
        environment: The variables of the server's environment that definitions may take by `env:NAME`.
        files: The files of the server's machine that definitions may take by `file:/path`, or name in `jdbc_params`;
            never those of the data folder, of /proc or of /sys.
        aws: The ARNs of the secrets of AWS Secrets Manager that the server reads as itself for definitions, and of the
            roles that it may assume to read any secret.
    """

    key_file: FolderPath | None = None
    environment: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    files: tuple[FolderPath, ...] = ()
    aws: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class _Environment(EnvSettingsSource):
    """The environment; a text that isn't JSON stays a text, so that the mistake is explained with its variable."""

    @override
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class Settings(BaseSettings):
    """All settings of one deployment; frozen.

    Attributes:
        data_dir: Folder of all that a deployment keeps.
        cache_dir: Folder of files that can be fetched again (jars), shared by deployments.
        objects: The object store, `s3://bucket/prefix` or a folder; None is a folder in the data folder.
        log_level: How much the parts write into their logs.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        env_ignore_empty=True,
        nested_model_default_partial_update=True,
    )

    data_dir: FolderPath = Field(default=DEFAULT_DATA_DIR, validate_default=True)
    cache_dir: FolderPath = Field(default=Path("~/.cache/caraway"), validate_default=True)
    objects: Annotated[str, AfterValidator(_objects_url)] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    spark: SparkSettings = SparkSettings()
    server: ServerSettings = ServerSettings()
    oidc: OidcSettings = OidcSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    sources: SourcesSettings = SourcesSettings()
    index: IndexSettings = IndexSettings()
    archive: ArchiveSettings = ArchiveSettings()
    offline: OfflineSettings = OfflineSettings()
    drift: DriftSettings = DriftSettings()
    skew: SkewSettings = SkewSettings()
    quality: QualitySettings = QualitySettings()
    alerts: AlertSettings = AlertSettings()
    sinks: SinkSettings = SinkSettings()
    traces: TracesSettings = TracesSettings()
    openlineage: OpenLineageSettings = OpenLineageSettings()
    secrets: SecretsSettings = SecretsSettings()
    functions: FunctionSettings = FunctionSettings()
    jars: JarsSettings = JarsSettings()

    @property
    def key_file(self) -> Path:
        """The file with the deployment's keys."""
        return self.secrets.key_file or self.data_dir / "secret.key"

    @property
    def objects_url(self) -> str:
        """The URL or folder of the object store."""
        return self.objects or str(self.data_dir / "objects")

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The settings file lies in the data folder. So that folder is determined before the file is read, from the
        # argument, the environment or the default.
        environment = _Environment(settings_cls)
        data_dir = init_settings().get("data_dir") or environment().get("data_dir") or DEFAULT_DATA_DIR
        file = absolute(Path(data_dir)) / FILE_NAME
        _check_owner(file)
        return init_settings, environment, TomlConfigSettingsSource(settings_cls, toml_file=file)

    def environment(self) -> dict[str, str]:
        """Return the variables that make `load_settings` in another process return these settings."""
        return dict(_flat(self.model_dump(mode="json"), ENV_PREFIX))


def _check_owner(file: Path) -> None:
    """Raise `ConfigurationError` for a file of another user, whose settings could run programs as this one."""
    if sys.platform != "win32" and file.exists() and (owner := file.stat().st_uid) not in {os.geteuid(), 0}:
        raise ConfigurationError(
            f"{file} belongs to another user (number {owner}), and its settings could run programs with your rights: "
            f"choose another data folder (--data, CARAWAY_DATA_DIR), or make the file yours (chown {os.geteuid()})"
        )


def load_settings(data_dir: Path | None = None) -> Settings:
    """Read the settings.

    Args:
        data_dir: The data folder, if an argument of the command chooses it.

    Raises:
        ConfigurationError: A value is wrong or a setting unknown; the text names all such settings and their variables.
    """
    chosen: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    mistakes = list(unknown_variables(Settings))
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        file = absolute(data_dir or Path(os.environ.get(f"{ENV_PREFIX}DATA_DIR") or DEFAULT_DATA_DIR)) / FILE_NAME
        raise ConfigurationError("\n".join([*mistakes, *explanations(Settings, error, file)])) from error
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{FILE_NAME} in the data folder can't be read: {error}") from error
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return settings


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        key = prefix + name.upper()
        match value:
            case None:
                continue
            case dict():
                yield from _flat(value, key + ENV_DELIMITER)
            case list():
                yield key, to_json(value).decode()
            case _:
                yield key, str(value)
