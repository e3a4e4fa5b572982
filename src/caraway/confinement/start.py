"""Start of the process that forks those of users' functions: `python start.py FD PATHS MODULE`.

This runs as a file, so that modules are found where the platform finds them, though the environment names no places.
"""

import importlib
import json
import sys

if __name__ == "__main__":
    descriptor, places, module = sys.argv[1:4]
    sys.path[:] = json.loads(places)
    importlib.import_module("caraway.confinement.fork_server").serve(int(descriptor), module)
