"""Caraway."""
