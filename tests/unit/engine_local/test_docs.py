"""The code in docs/local_engine.md runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "local_engine.md"


def test_the_code_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 - our own page
