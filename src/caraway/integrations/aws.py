"""References to secrets of AWS Secrets Manager; a definition never holds their values."""

from dataclasses import dataclass, replace

from caraway.errors import DefinitionError


@dataclass(frozen=True)
class Secret:
    """A reference to a secret, or to a part of one that holds JSON; the data plane reads the value.

    It can stand wherever a connector takes a credential. `secret["a"]["b"]` refers to the part under these keys.

    Attributes:
        arn: ARN of the secret.
        role_arn: ARN of a role that may read the secret; None for the role of the data plane.
        path: Keys into a secret that holds JSON; None for the whole text.

    Raises:
        DefinitionError: An argument isn't text, or the ARN is empty.
    """

    arn: str
    role_arn: str | None = None
    path: list[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arn, str) or not self.arn.strip():  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(f"aws.Secret: arn is the ARN of a secret, not {self.arn!r}")
        if self.role_arn is not None and (not isinstance(self.role_arn, str) or not self.role_arn.strip()):  # type: ignore[redundant-expr]
            raise DefinitionError(f"aws.Secret {self.arn}: role_arn is the ARN of a role, not {self.role_arn!r}")
        if self.path is not None and not (
            isinstance(self.path, list) and all(isinstance(key, str) for key in self.path)  # type: ignore[redundant-expr]
        ):
            raise DefinitionError(f"aws.Secret {self.arn}: path is a list of str, not {self.path!r}")

    def __getitem__(self, key: str) -> "Secret":
        """Return the part under `key` of a secret that holds JSON. Raises `DefinitionError` if the key isn't text."""
        if not isinstance(key, str):  # type: ignore[unreachable, unused-ignore]  # users pass anything
            raise DefinitionError(f"aws.Secret {self.arn}: keys into a secret are str, not {key!r}")
        return replace(self, path=[*(self.path or ()), key])

    def __hash__(self) -> int:
        return hash((self.arn, self.role_arn, tuple(self.path or ())))
