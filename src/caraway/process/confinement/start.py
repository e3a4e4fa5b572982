"""The start of the fork server of users' functions, as `python start.py FD PATHS MODULE`.

This runs as a file with the platform's search path as argument, since the environment has none.
"""

import importlib
import json
import sys

if __name__ == "__main__":
    descriptor, places, module = sys.argv[1:4]
    sys.path[:] = json.loads(places)
    importlib.import_module("caraway.process.confinement.fork_server").serve(int(descriptor), module)
