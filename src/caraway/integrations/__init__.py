"""What is kept in other systems: secrets of a cloud's vault."""

from caraway.integrations.aws import Secret

__all__ = ["Secret"]
