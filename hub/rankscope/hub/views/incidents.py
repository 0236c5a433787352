"""The view ``incidents``: the newest entries of the incident log."""

from rankscope.hub.views.knowledge import Knowledge
from rankscope.protocol import messages as m
from rankscope.protocol import shapes


def incidents(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.Incidents:
    return shapes.Incidents(incidents=know.incidents.shown)
