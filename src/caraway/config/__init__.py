"""Settings of a deployment: from the environment, a file in the data folder, or defaults."""

from caraway.config.errors import ConfigurationError
from caraway.config.settings import (
    FunctionSettings,
    IndexSettings,
    JarsSettings,
    KafkaSettings,
    PostgresSettings,
    SecretsSettings,
    ServerSettings,
    Settings,
    SparkSettings,
    load_settings,
)

__all__ = [
    "ConfigurationError",
    "FunctionSettings",
    "IndexSettings",
    "JarsSettings",
    "KafkaSettings",
    "PostgresSettings",
    "SecretsSettings",
    "ServerSettings",
    "Settings",
    "SparkSettings",
    "load_settings",
]
