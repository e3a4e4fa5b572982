"""The Java that Caraway runs on: which one it is, and the libraries that PySpark doesn't ship.

The build of the package uses these modules too, where none of Caraway's dependencies is installed but those that
`[build-system]` of pyproject.toml names. So they import the standard library, `cryptography` and `caraway.errors`.
"""
