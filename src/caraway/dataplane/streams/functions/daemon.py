"""The process that forks Spark's Python workers.

It also starts the fork server for users' functions, which all workers of an executor share. Started here, the fork
server loads its modules while the workers load theirs.
"""

from pyspark.daemon import manager

from caraway.dataplane.streams.functions.children import TARGET
from caraway.process.confinement.process import start_fork_server

if __name__ == "__main__":
    start_fork_server(TARGET)
    manager()
