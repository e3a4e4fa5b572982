"""JSON schemas: references within a schema are allowed as long as their validation takes linear time."""

from typing import Any

import pytest

from caraway.errors import DefinitionError
from caraway.graph.json_schemas import MAX_PARTS, check_schema


def test_a_schema_as_models_of_python_generate_it_is_allowed() -> None:
    pydantic = pytest.importorskip("pydantic")
    street = pydantic.create_model("Street", name=(str, ...), number=(int, 1))
    address = pydantic.create_model("Address", street=(street, ...), former=(list[street], ...))  # type: ignore[valid-type]
    person = pydantic.create_model("Person", home=(address, ...), work=(address | None, None))
    schema = person.model_json_schema()
    assert "$ref" in str(schema)
    check_schema(schema)
    check_schema(True)
    check_schema({"properties": {"$defs": {"type": "string"}}, "$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "# refers to itself"),
        ({"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"properties": {"definitions": {"patternProperties": {"(a+)+$": {}}}}}, "isn't supported"),
        ({"$ref": "#/$defs/a"}, "leads to no part"),
        ({"$ref": "http://127.0.0.1/schema"}, "leads to no part"),
        ({"items": {"$id": "other", "$ref": "#"}}, r"\$id in a part isn't supported"),
        ({"patternProperties": {"^(a+)+$": {}}}, "patternProperties isn't supported"),
        ({"items": {"$dynamicRef": "#x"}}, "dynamicRef isn't supported"),
        ({"pattern": "(?=a)"}, "regular expression|pattern"),
        ({"enum": list(range(MAX_PARTS))}, "more than 5,000 parts"),
    ],
)
def test_what_may_take_exponential_time_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason):
        check_schema(schema)


def test_references_that_double_again_and_again_are_refused_at_once() -> None:
    doubling: dict[str, Any] = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(60)}
    with pytest.raises(DefinitionError, match="with its references replaced"):
        check_schema({"$defs": doubling | {"s60": {"type": "string"}}, "$ref": "#/$defs/s0"})
