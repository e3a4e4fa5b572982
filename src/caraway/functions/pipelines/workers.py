"""The part of a Spark Python worker in calls of users' functions with batches of Arrow columns.

A function may loop for ever, take all memory, or end its process. So it runs in a process of its own, which the worker
can replace (`caraway.functions.pipelines.children`), and which may only compute (`caraway.functions.confinement`).
"""

import atexit
from collections.abc import Sequence

import pyarrow as pa

from caraway.functions.pipelines.calls import CallBatch, struct_array, unpacked_call
from caraway.functions.pipelines.children import FunctionChild, Halving, Limits, UselessError
from caraway.secrets.port import SecretAddress


def run_apart(
    packed: bytes,
    type_: pa.StructType,
    called: pa.Array,
    columns: Sequence[pa.Array],
    limits: Limits,
    *,
    address: SecretAddress | None = None,
) -> pa.StructArray:
    """Run `calls.run` in a process of its own, and survive whatever the function does to that process.

    The function gets the secrets of `address` through this process.

    Raises:
        RuntimeError: The function can't be run at all, or hangs or exits for too many rows.
    """
    child = _child(limits)
    batch = CallBatch(packed, type_, called, tuple(columns), has_secrets=address is not None)

    def fallback(reason: str) -> pa.StructArray:
        return struct_array([{"message": f"{_title(packed)} {reason}", "traceback": None}], type_)

    halving = Halving(
        ask=lambda low, high, seconds: child.ask(batch.part(low, high), seconds, address),
        fresh=lambda: child.fresh,
        fallback=fallback,
        limits=limits,
    )
    try:
        parts = halving.answers(0, len(called))
    except UselessError as error:
        raise RuntimeError(f"{_title(packed)} {error}") from error
    whole = pa.concat_arrays(parts)
    assert isinstance(whole, pa.StructArray)  # noqa: S101 (that is what its parts are)
    return whole


def _title(packed: bytes) -> str:
    return unpacked_call(packed).title


_children: dict[Limits, FunctionChild] = {}


def _child(limits: Limits) -> FunctionChild:
    """Return the child process of this worker; one is enough, because a worker runs one task at a time."""
    if limits not in _children:
        _end_children()
        _children[limits] = FunctionChild(limits.memory_mb, limits.confinement)
    return _children[limits]


@atexit.register
def _end_children() -> None:
    while _children:
        _children.popitem()[1].end()
