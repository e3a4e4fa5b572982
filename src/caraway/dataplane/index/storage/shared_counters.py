"""Numbers that processes on one machine share, in a file that all of them map into their memory."""

import mmap
from pathlib import Path

NUMBER_BYTES = 8


class SharedCounters:
    """Numbers from 0 to 2^64 - 1, which one process writes and others read.

    Reading a number is as fast as reading an item of a list. An aligned number is read and written by one instruction,
    so no process sees a half-written number.
    """

    def __init__(self, path: Path, count: int) -> None:
        """Map the file `path` with `count` numbers; in a new file all are 0.

        Raises `OSError` if the file can't be created or mapped.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        size = count * NUMBER_BYTES
        with path.open("ab") as file:
            if file.tell() < size:
                file.truncate(size)
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")

    def __getitem__(self, position: int) -> int:
        number: int = self._numbers[position]
        return number

    def __setitem__(self, position: int, number: int) -> None:
        self._numbers[position] = number
