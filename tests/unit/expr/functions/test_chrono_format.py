import pytest

from caraway.errors import DefinitionError
from caraway.expr.functions.chrono_format import Field, Text, parse_format, parse_reading_format

LISTED = [*"YmdHIpMSyjbBaAzsef", ".f", ".3f", ".6f", ".9f", "3f", "6f", "9f"]


def test_a_format_is_text_and_directives() -> None:
    assert parse_format("at %Y%%, %-d.%.3f") == (
        Text("at "),
        Field("Y"),
        Text("%"),
        Text(", "),
        Field("d", "-"),
        Text("."),
        Field(".3f"),
    )


@pytest.mark.spec("types:12.2.1:1")
@pytest.mark.parametrize("text", [f"%{name}" for name in LISTED])
def test_every_directive_of_the_spec_is_a_field(text: str) -> None:
    assert parse_format(text) == (Field(text[1:]),)


@pytest.mark.spec("types:12.2.1:1")
def test_composites_are_expanded() -> None:
    assert parse_format("%F") == (Field("Y"), Text("-"), Field("m"), Text("-"), Field("d"))
    assert parse_format("%T") == parse_format("%H:%M:%S")
    assert parse_format("%D") == parse_format("%m/%d/%y")
    assert parse_format("%%") == (Text("%"),)


@pytest.mark.spec("types:12.2.1:2")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("%L", r'"%L" at position 0 of the format "%L"'),
        ("%Y %Q", r'"%Q" at position 3'),
        ("%Y-%", "a lone % at position 3"),
        ("%5f", '"%5" at position 0'),
        ("%-z", '"%-z" at position 0'),
    ],
)
def test_an_unknown_directive_is_named_with_its_position(text: str, part: str) -> None:
    with pytest.raises(DefinitionError, match=part):
        parse_format(text)


@pytest.mark.spec("types:12.2.1:5")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("%m-%d", 'the format "%m-%d" has no year'),
        ("%Y %I", "which half"),
        ("%Y %Z", '"%Z" .* can be written, but not read'),
        ("%G-%V", "but not read"),
    ],
)
def test_a_format_for_reading_settles_an_instant(text: str, part: str) -> None:
    parse_format(text)
    with pytest.raises(DefinitionError, match=part):
        parse_reading_format(text)
