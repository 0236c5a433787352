"""Snapshots of which nobody knows whether they are still true."""

from dataclasses import replace

import msgspec

from rankscope.protocol import shapes as s
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words.nohub import older
from support.scenes.making import finding
from support.scenes.runs import dead, healthy_8

NO_HUB = finding(
    "link-lost",
    [],
    [],
    "nothing is known since 2025-11-29 16:01:45: the hub is gone and the run had not ended",
    evidence=[
        "no hub holds this run's lock, and run.json names no end",
        "training does not need its hub: it may well go on",
        "what is shown here is what was known then",
    ],
    next="watch it again: rankscope hub 20261129-163000; whether its ranks still run: "
    "ps -p 4700,4701 (on node-a)",
)


def gone(snapshot: Snapshot | None = None, behind_s: float = 34.0) -> Snapshot:
    """Its hub was killed, and so was what restarts it: answered from the recording."""
    shown = healthy_8() if snapshot is None else snapshot
    assert shown.status is not None
    found = [*shown.status.findings, NO_HUB]
    verdict = shown.status.verdict or NO_HUB
    status = msgspec.structs.replace(shown.status, findings=found, verdict=verdict)
    status = older(status, behind_s)
    assert isinstance(status, s.Status)
    return replace(shown, status=status, replay=True, behind_s=behind_s)


def gone_stalled() -> Snapshot:
    """The same of a run that hung."""
    return gone(dead())


def unheard() -> Snapshot:
    """The hub is there, and has heard of no rank for a while."""
    shown = healthy_8()
    assert shown.overview is not None
    return replace(shown, overview=msgspec.structs.replace(shown.overview, data_age_s=4.9))


SCENES = {
    "gone": (gone, 0.0),
    "gone-stalled": (gone_stalled, 0.0),
    "silent": (healthy_8, 4.9),
    "silent-stalled": (dead, 4.9),
    "unheard": (unheard, 0.0),
}
"""Each with the local clock's time at which it is looked at; it was taken at 0."""
