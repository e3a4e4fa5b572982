"""Tuning of Python's cyclic garbage collector: it costs little, and its full collections don't hold up requests.

A full collection looks at each object of the process, which takes 160 ms every half a minute in a server that serves
one pipeline, and no request goes on meanwhile. Objects that were loaded to stay are therefore frozen: later collections
leave them out.
"""

import gc

# `keep_what_is_here` collects the frozen objects, too, once there are this many times as many as its last such
# collection left. That collection stops all requests for 160 ms or more, so several commits within a second must not
# cause one each. Frozen objects that die in reference cycles in between keep their memory: at most about as much as the
# objects that the last collection left.
GROWTH = 2.0
# Python collects the youngest objects once this many more of them have been made than freed. With its default of 700,
# collections took 30 to 40% of the time of an index that applies batches of 10,000 records, and of a watch that checks
# such batches. The objects of a batch, or of a request, die together at its end without any collection. A collection of
# 100,000 objects takes some 5 ms.
YOUNGEST = 100_000

_alive = 0


def collect_rarely() -> None:
    """Begin a collection only after many new objects: most die together soon, and need none."""
    gc.set_threshold(YOUNGEST, *gc.get_threshold()[1:])


def keep_what_is_here() -> None:
    """Collect the objects that came since the last call, and leave the survivors out of all later collections.

    Callers call this after they have replaced something large, such as the served graph. Frozen objects that have died
    are freed only now and then (see `GROWTH`), so that most calls are quick.
    """
    global _alive  # noqa: PLW0603 (the collector is one for the process, too)
    whole = gc.get_freeze_count() >= GROWTH * _alive
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    if whole:
        _alive = gc.get_freeze_count()
