"""What a server answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

V1_API = "/api/v1"
BRANCH_HEADER = "X-Caraway-Branch"


@dataclass(frozen=True)
class Response:
    """What a server answered: as an object, and as a dict of `status_code`, `headers`, `body`."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        """Read the body as JSON; one that isn't JSON is empty."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}

    def __getitem__(self, item: str) -> Any:  # noqa: ANN401 (by name)
        return {"status_code": self.status_code, "headers": self.headers, "body": self.text}[item]
