"""The function that answers requests for secrets."""

from collections.abc import Callable

# A function that returns the secret of a name. For an unknown name it raises `UnknownEntityError`, which is a KeyError.
SecretProvider = Callable[[str], str]
