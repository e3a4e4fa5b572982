"""What the server answered."""

from typing import Any


class Response(dict[str, Any]):
    """An answer as a mapping with `status_code`, `headers` and `body`, and as an object with `status_code` and `json()`."""

    def __init__(self, *, status_code: int, headers: dict[str, str], body: Any) -> None:  # noqa: ANN401 (any JSON)
        """Hold an answer; `body` is the parsed JSON, or the text where it isn't JSON."""
        super().__init__(status_code=status_code, headers=headers, body=body)

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        status: int = self["status_code"]
        return status

    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        """Give the body."""
        return self["body"]
