"""The former module of aggregates; new code imports them from `caraway.datasets`."""

# This module is kept for compatibility only.
from caraway.datasets.aggregates import *
from caraway.datasets.aggregates import __all__
