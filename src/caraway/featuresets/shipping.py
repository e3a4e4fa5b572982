"""User functions by value, as extractors need them."""

from caraway.lib.shipping import ship, source_with_includes

__all__ = ["ship", "source_with_includes"]
