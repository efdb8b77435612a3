"""Arrays to SVG: lines, points, bars, heat maps; readable on light and dark pages, with nothing to load."""

from __future__ import annotations

from occamroute.charts.bars import interval_bars, share_bars, stacked_bars
from occamroute.charts.drawing import COLOURS, NARROW, WIDE, Canvas, log_ticks, nice_ticks
from occamroute.charts.heat import heat_map
from occamroute.charts.lines import Series, line_chart

__all__ = [
    "COLOURS",
    "NARROW",
    "WIDE",
    "Canvas",
    "Series",
    "heat_map",
    "interval_bars",
    "line_chart",
    "log_ticks",
    "nice_ticks",
    "share_bars",
    "stacked_bars",
]
