"""The process that forks Spark's Python workers.

It also starts the fork server for users' functions, which all workers of an executor share. Started here, the fork
server loads its modules while the workers load theirs.
"""

from pyspark.daemon import manager

from caraway.functions.confinement.process import start_fork_server
from caraway.functions.pipelines.children import TARGET

if __name__ == "__main__":
    start_fork_server(TARGET)
    manager()
