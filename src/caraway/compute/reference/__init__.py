"""The in-process engine, which computes all datasets of a branch in memory; the other engines are tested against it."""
