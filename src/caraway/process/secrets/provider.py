"""The function that answers requests for secrets."""

from collections.abc import Callable

# A function that returns the secret of a name, or raises a KeyError for an unknown name.
SecretProvider = Callable[[str], str]
