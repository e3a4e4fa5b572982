"""The guide to unit tests runs."""

import inspect
from pathlib import Path

import pytest

from tests.markdown import DOCS, run_page


def test_the_tests_of_the_guide_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The guide's fixture is called as a plain function.
    monkeypatch.setattr(pytest, "fixture", lambda function: function)
    module = run_page(DOCS / "learn" / "testing.md", tmp_path, monkeypatch)
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    assert len(tests) == 9
    for test in tests.values():
        if "client" in inspect.signature(test).parameters:
            test(client=module.client())
        else:
            test()
