"""The former module of aggregates; new code imports them from `caraway.datasets`."""

# The module remains for programs that were written for its former name.
from caraway.datasets.aggregates import *
from caraway.datasets.aggregates import __all__
