"""When nobody knows how the run is now: its hub is gone, and it had not ended. Pure.

Whoever answers from the recording of such a run says so in a finding of its own; everything else
in that answer was true when the last word came.
"""

import msgspec

from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, safe

HEAD = "NO HUB"
"""What heads all that is shown then, whether it can be had again or not."""


def no_hub(status: Status) -> Finding | None:
    """The finding that says since when nothing is known; None where a hub answers."""
    return next((finding for finding in status.findings if is_no_hub(finding)), None)


def is_no_hub(finding: Finding) -> bool:
    # Every other one of this kind names the ranks that are not heard.
    return finding.kind == "link-lost" and not finding.ranks and not finding.victims


def as_known(status: Status) -> Status:
    """``status`` as of now: where no hub answers, that is the verdict, not what was found last."""
    gone = no_hub(status)
    return status if gone is None else msgspec.structs.replace(status, verdict=gone)


def since_when(gone: Finding) -> str:
    """``nothing is known since 2026-11-30 14:03:12 (34 s ago): the hub is gone …``"""
    since, _, why = gone.headline.rpartition(": ")
    return safe(f"{since} ({numbers.age(gone.since_s)} ago): {why}")


def last_known(status: Status) -> Finding | None:
    """The gravest finding that was open when the last word came."""
    gone = no_hub(status)
    if gone is None:
        return status.verdict
    others = [finding for finding in status.findings if finding is not gone]
    return max(others, key=lambda one: SEVERITY_ORDER.index(one.severity), default=None)


def older(status: Status, age_s: float) -> Status:
    """``status`` with nothing known for ``age_s``: that grows, and nothing else in it does."""
    gone = no_hub(status)
    if gone is None:
        return status
    grown = msgspec.structs.replace(gone, since_s=age_s)
    return msgspec.structs.replace(
        status,
        findings=[grown if finding is gone else finding for finding in status.findings],
        verdict=grown if status.verdict == gone else status.verdict,
    )


SEVERITY_ORDER = list(SEVERITIES)
