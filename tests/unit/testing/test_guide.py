"""The guide to unit tests runs."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "testing.md"
NAME = "caraway_testing_guide"


def test_the_tests_of_the_guide_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    # As a module, so that the source of its functions can be found; its fixture as a plain function.
    path = tmp_path / f"{NAME}.py"
    path.write_text("\n\n".join(blocks))
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, NAME, module)
    monkeypatch.setattr(pytest, "fixture", lambda function: function)
    spec.loader.exec_module(module)
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    assert len(tests) == 9
    for test in tests.values():
        if "client" in inspect.signature(test).parameters:
            test(client=module.client())
        else:
            test()
