"""The entities that a commit touches, with their tags before and after."""

from dataclasses import replace

from caraway.apps.server.control.touching import touched
from caraway.graph.specs import Graph, Metadata
from tests.unit.apps.server.control.graphs import clicks, shopper, spend, users

OWNED = Metadata(owner="me@example.com")


def test_nothing_is_touched_where_nothing_differs() -> None:
    graph = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent", "big"),))
    assert list(touched(graph, graph)) == []


def test_what_comes_or_goes_is_touched() -> None:
    graph = Graph(datasets=(clicks(), users()))
    assert {name for name, _ in touched(Graph(), graph)} == {"Clicks", "Users"}
    assert {name for name, _ in touched(graph, Graph(datasets=(clicks(),)))} == {"Users"}


def test_a_tag_of_ones_own_doesnt_open_an_entity() -> None:
    before = Graph(datasets=(replace(users(), metadata=replace(OWNED, tags=("theirs",))),))
    after = Graph(datasets=(replace(users(), metadata=replace(OWNED, tags=("mine",))),))
    assert [(name, set(tags)) for name, tags in touched(before, after)] == [("Users", {"theirs"}), ("Users", {"mine"})]


def test_of_a_featureset_only_features_that_differ() -> None:
    whole = shopper("user", "spent", "big")
    fewer = replace(
        whole,
        features=tuple(f for f in whole.features if f.name != "big"),
        extractors=tuple(e for e in whole.extractors if "big" not in repr(e)),
    )
    datasets = (clicks(), spend())
    before, after = Graph(datasets=datasets, featuresets=(fewer,)), Graph(datasets=datasets, featuresets=(whole,))
    assert {name for name, _ in touched(before, after)} == {f"{whole.name}.big"}
    renamed = replace(whole, metadata=replace(whole.metadata, description="new"))
    described = Graph(datasets=datasets, featuresets=(renamed,))
    assert {name for name, _ in touched(after, described)} == {f"{whole.name}.{f.name}" for f in whole.features}


def test_an_extractor_with_tags_of_its_own_is_touched_with_them() -> None:
    """The features of an extractor don't inherit its tags, so they alone would let anybody replace its code."""

    def graph(code: str, *tags: str) -> Graph:
        whole = shopper("user", "spent", "big", code=code)
        lookup, function = whole.extractors
        tagged = replace(function, metadata=replace(OWNED, tags=tags))
        return Graph(datasets=(clicks(), spend()), featuresets=(replace(whole, extractors=(lookup, tagged)),))

    def names(before: Graph, after: Graph) -> list[tuple[str, set[str]]]:
        return [(name, set(tags)) for name, tags in touched(before, after)]

    secret = graph("return 1", "secret")
    assert names(secret, secret) == []
    before = [("Shopper.big", set()), ("extractor Shopper.is_big", {"secret"})]
    assert names(secret, graph("return 2", "secret")) == before * 2
    # Somebody who may not change it may not take its tag off either.
    assert names(secret, graph("return 1")) == [*before, ("Shopper.big", set())]
