"""The settings of the allocator, in a process of their own."""

import subprocess
import sys

import pytest

# Frees a large buffer that lies below a small one, after many others whose release would have raised glibc's threshold.
PROGRAM = """
import sys
from caraway.process.allocator import return_large_buffers
if sys.argv[1] == "set":
    return_large_buffers()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for size in range(1, 20):
    bytearray(size * 1024 * 1024)
before = resident()
pairs = [(b"x" * 4_000_000, b"y" * 200_000) for _ in range(20)]
kept = [small for _, small in pairs]
del pairs
print(resident() - before)
"""


def growth(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has the setting")
def test_large_buffers_are_returned_to_the_system() -> None:
    assert growth("set") < 12_000_000
    # Without the setting, the small buffers keep the large ones from being returned.
    assert growth("leave") > 40_000_000
