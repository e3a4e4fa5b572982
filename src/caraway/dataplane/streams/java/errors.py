"""The errors that can occur before a JVM runs.

    UnavailableError
    ├── JavaMissingError             no Java that Spark and Kafka run on
    └── JarsError                    a Java library is missing, can't be fetched, or fails its check

Every message says how to mend the fault.
"""

from caraway.errors import UnavailableError


class JavaMissingError(UnavailableError):
    """No Java of a version that Spark and Kafka run on was found."""

    code = "java_missing"


class JarsError(UnavailableError):
    """Java libraries are missing, can't be fetched, or fail their check."""

    code = "jars_unavailable"
