"""The errors in settings."""

from caraway.errors import CarawayError


class ConfigurationError(CarawayError, ValueError):
    """A setting is unknown, or has a value that can't be used."""

    code = "invalid_configuration"
