"""Python imports this as it starts, where this folder is on PYTHONPATH: every process below the one that was given
orders is under them too, whatever starts it. Spark's workers are Java's children, and forks of a daemon of its own."""

import os

from infra.runtime.crash_points import observe
from tests.faults.victim import ORDERS, Executioner

if ORDERS in os.environ:
    observe(Executioner(os.environ[ORDERS]).made)
