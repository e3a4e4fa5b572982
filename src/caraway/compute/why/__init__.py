"""Explanations of single values of features: the events and versions from which they are computed (docs/guides/why.md).

`model` is the explanation as plain data, `explaining` makes it, and `showing` prints it. The records come from a
`Histories`: from the in-process engine, or from the topics of a server.
"""
