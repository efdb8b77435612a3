"""Exact nearest neighbours under l1, l2 and linf.

:class:`GroupIndex` finds the nearest row in each of several groups of rows; :class:`PoolIndex` ranks the rows
of one pool. Both average values over what they find, with rows at exactly equal distance sharing equally; an
:class:`Averager` does so for queries that come a few at a time.
"""

from __future__ import annotations

from occamroute.neighbors.groups import Averages, GroupIndex, Nearest
from occamroute.neighbors.metrics import METRICS
from occamroute.neighbors.pool import Averager, PoolAverages, PoolIndex, Ranked

__all__ = ["METRICS", "Averager", "Averages", "GroupIndex", "Nearest", "PoolAverages", "PoolIndex", "Ranked"]
