"""The Java libraries that PySpark doesn't ship: Kafka's broker and Spark's Kafka connector.

`ivy.xml` locks their versions and `jars.sha256` their content; nothing is resolved transitively.
"""

from caraway.stack.jars.cache import JarSet, ensure_jars
from caraway.stack.jars.lock import Jar, read_lock

__all__ = ["Jar", "JarSet", "ensure_jars", "read_lock"]
