"""Mutants: modules with one thing changed, by which a test shows that other tests would notice such a mistake."""

import sys
from types import ModuleType


def mutant(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return a copy of a module in whose source a text is replaced; the text must be there exactly once.

    The copy has classes and functions of its own; those that others have imported from the module stay as they are.
    """
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:  # noqa: PTH123 (a path of a module is a text)
        source = file.read()
    assert source.count(old) == 1, (
        f"{module.__name__} has this {source.count(old)} times, so the mutant is stale: {old}"
    )
    made = ModuleType(module.__name__)
    made.__file__ = module.__file__
    # Dataclasses look their module up by its name.
    kept = sys.modules[module.__name__]
    sys.modules[module.__name__] = made
    try:
        exec(compile(source.replace(old, new), module.__file__, "exec"), made.__dict__)  # noqa: S102 (our own source)
    finally:
        sys.modules[module.__name__] = kept
    return made
