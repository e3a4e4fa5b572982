"""Log lines have no passwords of addresses that are asked."""

import subprocess
import sys

PROGRAM = """
import httpx2
from caraway.process.logs import configure_logging

configure_logging("debug")
with httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200))) as client:
    client.post("http://ada:hunter2@alerts/?token=hunter2", headers={"Authorization": "Bearer hunter2"})
print("asked")
"""


def test_the_address_of_a_request_is_not_logged() -> None:
    asked = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert "asked" in asked.stdout
    assert "hunter2" not in asked.stderr
