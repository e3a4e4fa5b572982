"""The Java installation that Caraway runs on, and the Java libraries that PySpark doesn't ship.

The build of the package uses these modules too, and it has only the dependencies in `[build-system]` of pyproject.toml.
So they import nothing but the standard library, `cryptography` and `caraway.errors`.
"""
