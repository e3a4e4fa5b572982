"""Connectors in processes of their own, which have their rights, their secrets and nothing of the platform."""
