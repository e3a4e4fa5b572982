"""The settings of the C library's allocator, for processes that live long and answer large requests now and then."""

import ctypes

# The numbers of the options, from malloc.h of glibc.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
# A buffer of at least this size gets a memory mapping of its own (mmap), which ends when the buffer is freed.
LARGE_BYTES = 256 * 1024


def return_large_buffers() -> None:
    """Have buffers of `LARGE_BYTES` and more returned to the system as soon as they are freed.

    Without this, glibc raises its threshold up to 32 MiB as large buffers are freed, and takes later ones from its
    arenas, of which each thread has one. There a small block behind a freed buffer keeps it from being returned: after
    10,000 malformed requests, some of them with bodies of 40 MB, the server kept 100 MB more. Other C libraries have no
    such setting, and nothing changes there.
    """
    _set(_M_MMAP_THRESHOLD, LARGE_BYTES)


def share_arenas(arenas: int = 2) -> None:
    """Have all threads that start later take their memory from so many arenas, where glibc has up to eight a processor.

    Other C libraries have no such setting, and nothing changes there.
    """
    _set(_M_ARENA_MAX, arenas)


def _set(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
