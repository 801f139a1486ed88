"""The demo: what the manager promises, shown on a cluster in memory within a minute.

`scenario` is what a user does, through the API only; `narrator` turns what was written into lines and is pure;
`referee` checks the two promises and counts; `runner` puts them together and prints.
"""

from reconciler.demo.cluster import LocalCluster
from reconciler.demo.definitions import DefinitionsMissing, find_definitions
from reconciler.demo.runner import Report, run_demo
from reconciler.demo.waiting import NotInTime

__all__ = ["DefinitionsMissing", "LocalCluster", "NotInTime", "Report", "find_definitions", "run_demo"]
