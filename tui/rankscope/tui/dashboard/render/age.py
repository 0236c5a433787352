"""How old what is shown is, and that it looks so."""

import time
from dataclasses import replace

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line, Span, text_of
from rankscope.tui.words.verdict import FRESH_S


def word_age_s(picture: Picture, now_t_s: float) -> float:
    """How long ago a hub said last how the run is; ``now_t_s``: the local monotonic clock."""
    snapshot = picture.snapshot
    if snapshot.hub_s is None:
        return 0.0
    return snapshot.behind_s + max(0.0, now_t_s - snapshot.taken_t_s)


def seen(picture: Picture, now_t_s: float) -> Picture:
    """``picture`` as it is to be drawn now: a hub that does not answer is silent."""
    silent = picture.snapshot.link == "up" and word_age_s(picture, now_t_s) > FRESH_S
    return picture if silent == picture.silent else replace(picture, silent=silent)


def unheard_s(picture: Picture, now_t_s: float) -> float | None:
    """How long no rank was heard, by a hub that is there; None where that is not known."""
    overview = picture.overview
    if overview is None or overview.data_age_s is None:
        return None
    return overview.data_age_s + word_age_s(picture, now_t_s)


def as_of(picture: Picture) -> str:
    """``as of 14:03:12``: when the hub said last how the run is, in local time."""
    hub_s = picture.snapshot.hub_s
    return "" if hub_s is None else time.strftime("as of %H:%M:%S", time.localtime(hub_s))


def faded(content: Line) -> Line:
    """``content`` as what was true once; the cursor stays in sight."""
    return tuple(
        span if span.style == "cursor" or not span.text.strip() else Span(span.text, "dim")
        for span in content
    )


def faded_below_head(top: list[Line]) -> list[Line]:
    """The lines below the rule that ends the head of a screen."""
    for at, each in enumerate(top):
        if at and not text_of(each).strip("─ ") and text_of(each).strip():
            return [*top[: at + 1], *map(faded, top[at + 1 :])]
    return top
