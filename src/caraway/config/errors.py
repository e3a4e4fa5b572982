"""What can be wrong with settings."""

from caraway.errors import CarawayError


class ConfigurationError(CarawayError, ValueError):
    """A setting has a value that can't be used, or isn't known."""

    code = "invalid_configuration"
