"""Errors without secrets: a library of a system may quote the password or the URL with it in the text of an error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from caraway.errors import CommitError, UnavailableError
from caraway.graph.systems import Secretish, SecretRef

# Values with fewer characters than this aren't hidden: hiding them would hide parts of other words, and so short a text
# keeps no secret.
LEAST = 4
HIDDEN = "(secret)"


class HiddenSecrets:
    """Returns the values of references to secrets, and hides them in errors. Thread safe."""

    def __init__(self, resolve: Callable[[Secretish], str]) -> None:
        """Look up values by `resolve`."""
        self._resolve = resolve
        # Outdated values stay in the set: an error about a changed password may quote the old one.
        self._values: frozenset[str] = frozenset()

    def __call__(self, secret: Secretish) -> str:
        """Return the value of a setting, or of the secret that it refers to; raises as `resolve` does."""
        value = self._resolve(secret)
        if isinstance(secret, SecretRef) and len(value) >= LEAST:
            self._values |= {value}
        return value

    def hide(self, text: str) -> str:
        """Return a text without the values that were looked up."""
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return text

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Raise errors of the block without the values that were looked up.

        Errors of the classes `UnavailableError` and `CommitError` keep their classes; others become the former.
        """
        try:
            yield
        except Exception as error:
            text = self.hide(str(error))
            if text == str(error):
                raise
            # `from None` leaves out the caught error, whose text and traceback would show the secret.
            kind = type(error) if isinstance(error, UnavailableError | CommitError) else UnavailableError
            raise kind(text) from None
