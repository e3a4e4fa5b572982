"""Keeping Python's cyclic collector from holding up requests.

A full collection looks at each object of the process: 160 ms every half a minute in a server that serves one pipeline,
and no request goes on meanwhile. What was loaded to stay needs no second look.
"""

import gc

# All that is kept is looked at again once there is so many times as much of it: a full collection of it stops all
# requests for 160 ms and more, and several commits may come within a second. Between two of them, objects that refer to
# each other in a circle and were kept take memory after their end: at most as much as was alive at the last.
GROWTH = 2.0

_alive = 0


def keep_what_is_here() -> None:
    """Collect what came since the last call, and leave what is left out of all later collections.

    To be called when something large was replaced, such as the graph that is served. What died of that which was left
    out before is freed once in a while (see `GROWTH`), so that a call seldom takes long.
    """
    global _alive  # noqa: PLW0603 (the collector is one for the process, too)
    whole = gc.get_freeze_count() >= GROWTH * _alive
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    if whole:
        _alive = gc.get_freeze_count()
