"""Clocks and chance in the text of users' functions."""

import pytest

from caraway.offline.monitoring.skew.code import may_vary

STEADY = [
    "def f(cls, ts, n): return n + 1",
    "    def f(cls, ts, n):\n        return ts.dt.hour + pd.Timestamp('2024-01-01').day",
    "def f(cls, ts, time): return time.dt.total_seconds()",
    "def f(cls, ts, n): return n['random']",
    "def f(cls, ts, n): return secrets.get('key')",
    "lambda (",
    "",
]
VARYING = [
    "def f(cls, ts, n): return random.random()",
    "def f(cls, ts, n): return np.random.rand(3)",
    "def f(cls, ts, n): return datetime.now(UTC) - ts",
    "    def f(cls, ts, n):\n        return pd.Timestamp.utcnow()",
    "def f(cls, ts, n): return time.time()",
    "def f(cls, ts, n): return time.monotonic()",
    "def f(cls, ts, n):\n    from random import choice\n    return choice(n)",
    "def f(cls, ts, n):\n    import uuid as u\n    return u.uuid4()",
    "def f(cls, ts, n): return date.today()",
    "def f(cls, ts, n): return os.urandom(3)",
    "def f(cls, ts, n): return rng.default_rng().normal()",
]


@pytest.mark.parametrize("text", STEADY)
def test_steady_functions(text: str) -> None:
    assert not may_vary(text)


@pytest.mark.parametrize("text", VARYING)
def test_varying_functions(text: str) -> None:
    assert may_vary(text)
