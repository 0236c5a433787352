"""Snapshots of runs in every state a screen has to show: what the feed hands to the dashboard."""

from support.scenes.findings import DEAD, STOPPED
from support.scenes.making import HUB_S, detail_of, finding, row, run
from support.scenes.runs import SCENES, WAITS, dead, finished, fleet, healthy_2, healthy_8

__all__ = [
    "DEAD",
    "HUB_S",
    "SCENES",
    "STOPPED",
    "WAITS",
    "dead",
    "detail_of",
    "finding",
    "finished",
    "fleet",
    "healthy_2",
    "healthy_8",
    "row",
    "run",
]
