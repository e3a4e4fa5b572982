"""A branch of the mock: its definitions, its data, and queries over both."""

import warnings
from collections.abc import Sequence

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.model import Instants, QueryReader, Rows
from caraway.compute.reference.engine import LocalEngine
from caraway.graph.merging import merge, without_deleted
from caraway.graph.source_checks import conflicting_systems
from caraway.graph.specs import Graph
from caraway.graph.validation.graphs import validate


class Branch(QueryReader):
    """One state of a branch: a commit returns another state, data goes into the engine.

    `env` is the environment of the commit. A branch is the reader of its own queries.
    """

    def __init__(self, graph: Graph, env: str | None, engine: LocalEngine) -> None:
        self.graph = graph
        self.env = env
        self.engine = engine
        self.catalog = Catalog("mock", graph)
        self.queries = QueryEngine(self.catalog, self)

    @classmethod
    def empty(cls) -> "Branch":
        """Return a branch without definitions."""
        return cls(Graph(), None, LocalEngine())

    def copy(self) -> "Branch":
        """Return a branch with the same content, whose later changes are its own."""
        return Branch(self.graph, self.env, self.engine.copy())

    def committed(self, given: Graph, env: str | None, *, incremental: bool) -> "Branch":
        """Return the branch as it is after a commit; this object isn't changed.

        Args:
            given: The committed definitions that the environment selects, including those that are marked as deleted.
            env: The environment.
            incremental: True: definitions that aren't in `given` stay, with their data.

        Raises:
            CommitError: The definitions contradict each other or the branch.
            CommitTypeError: The same, where the API has a TypeError.
        """
        # The given definitions are first validated by themselves, because a name that two of them share is lost in the
        # merged graph.
        validate(given, partial=incremental)
        for message in conflicting_systems(given):
            warnings.warn(f"{message}; the first one is kept, a server refuses this", stacklevel=4)
        if not incremental:
            wanted = without_deleted(given)
            return Branch(wanted, env, LocalEngine(wanted.datasets))
        graph = merge(self.graph, given, incremental=True)
        validate(graph)
        given_versions = {spec.name: spec.version for spec in given.datasets}
        keep = {
            spec.name for spec in self.graph.datasets if given_versions.get(spec.name, spec.version) == spec.version
        }
        engine = self.engine.copy()
        engine.replace_datasets(graph.datasets, keep=keep)
        return Branch(graph, env, engine)

    def read(self, source: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Return rows of a keyed dataset; see `caraway.compute.query.model.Reader`."""
        return self.engine.lookup(source, keys, at_us, columns)
