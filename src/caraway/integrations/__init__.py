"""Integrations with other systems: references to secrets of AWS, and mypy."""

from caraway.integrations.aws import Secret

__all__ = ["Secret"]
