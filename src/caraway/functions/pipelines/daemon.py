"""The process that forks Spark's Python workers; it also starts the one that forks processes for users' functions.

All workers of an executor share the latter. It is started here, so that it loads its modules while workers load theirs.
"""

from pyspark.daemon import manager

from caraway.functions.confinement.process import start_fork_server
from caraway.functions.pipelines.children import TARGET

if __name__ == "__main__":
    start_fork_server(TARGET)
    manager()
