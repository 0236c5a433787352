"""Whether a restarted run is what it was before: in text and on the screens."""

import dataclasses

import msgspec
import pytest

from rankscope.protocol.shapes import Parity, ParityDifference
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import hub_lines
from rankscope.tui.dashboard.render.checkpoints import checkpoint_lines
from rankscope.tui.text.checkpoints import checkpoints_text
from rankscope.tui.text.status import status_text
from support import scenes
from support.scenes import views

EQUAL = Parity("parity: 12 steps bitwise equal (13 to 24)", over=True, steps=12)
OTHER = Parity(
    "parity: first differs at step 14: rank 1 got another batch",
    difference=ParityDifference(14, 1, "batch", "0a", "0b"),
)


@pytest.mark.parametrize("found", [None, EQUAL, OTHER])
def test_parity_is_told_wherever_one_looks_and_only_after_a_restart(found: Parity | None) -> None:
    """In status, on the first screen, and where checkpoints are."""
    text = "" if found is None else found.text
    snapshot = scenes.healthy_8()
    assert snapshot.status is not None
    assert snapshot.overview is not None
    status = msgspec.structs.replace(snapshot.status, parity=text)
    overview = msgspec.structs.replace(snapshot.overview, parity=text)
    view = msgspec.structs.replace(views.checkpoints_view(), parity=found)
    picture = Picture(dataclasses.replace(snapshot, status=status, overview=overview))
    told = [
        "\n".join(status_text(status, overview)),
        "\n".join(checkpoints_text(view)),
        "".join(span.text for each in hub_lines(picture, 80) for span in each),
    ]
    screen = checkpoint_lines(view, picture, 80)
    told.append("".join(span.text for each in screen for span in each))
    for one in told:
        assert text.removeprefix("parity: ") in one
        assert ("parity" in one) == bool(text)
    styles = [span.style for each in screen for span in each if "differs" in span.text]
    assert styles == (["warn"] if found is OTHER else [])
