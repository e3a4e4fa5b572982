"""Settings of a deployment: from the environment, a file in the data folder, or defaults."""

from caraway.config.errors import ConfigurationError
from caraway.config.settings import (
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
