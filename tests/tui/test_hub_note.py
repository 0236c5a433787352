"""What is wrong with the hub itself is on the first screen and in the text."""

import dataclasses

import msgspec
import pytest

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import hub_lines
from rankscope.tui.text.status import status_text
from support.scenes import healthy_8

NOTE = "nothing is recorded: no space left on device"


@pytest.mark.parametrize("note", ["", NOTE])
def test_a_note_of_the_hub_is_shown_when_there_is_one(note: str) -> None:
    """A full disk is said where the operator looks, and nothing is said when all is well."""
    snapshot = healthy_8()
    assert snapshot.status is not None
    assert snapshot.overview is not None
    overview = msgspec.structs.replace(snapshot.overview, hub_note=note)
    text = "\n".join(status_text(snapshot.status, overview))
    picture = Picture(dataclasses.replace(snapshot, overview=overview))
    drawn = "".join(span.text for each in hub_lines(picture, 80) for span in each)
    assert (NOTE in text) == bool(note)
    assert (NOTE in drawn) == bool(note)
