"""Numbers that processes on one machine share, in a file that all of them map into their memory."""

import mmap
from pathlib import Path

NUMBER_BYTES = 8


class SharedCounters:
    """A row of numbers from 0 to 2^64 - 1. One process writes, any read; to look costs as much as a list's item.

    An aligned number is written and read by one instruction, so nobody sees half of one.
    """

    def __init__(self, path: Path, count: int) -> None:
        """Map the file `path` with `count` numbers; if it isn't there yet, all are 0.

        Raises:
            OSError: The file can't be made or mapped.
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
