"""Integrations with other systems: secrets of several stores, and mypy."""

from caraway.integrations.aws import Secret

__all__ = ["Secret"]
