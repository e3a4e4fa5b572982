"""Keeping Python's cyclic collector from holding up requests.

A full collection looks at each object of the process: 160 ms every half a minute in a server that serves one pipeline,
and no request goes on meanwhile. What was loaded to stay needs no second look.
"""

import gc


def keep_what_is_here() -> None:
    """Collect now, and leave what is left out of all later collections.

    To be called when something large was replaced, such as the graph that is served: what has died since the last call
    is freed, whether it was left out or not. Takes as long as the full collections that it saves.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
