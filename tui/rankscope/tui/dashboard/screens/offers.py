"""Which keys do something here and now, and why the others do not. Pure.

What the footer shows and what a key does come from here, so they cannot disagree.
"""

from typing import TYPE_CHECKING

from rankscope.tui.dashboard.action import Action
from rankscope.tui.dashboard.actions import footer_actions
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.words.checkpoints import command_of, refusal

if TYPE_CHECKING:
    from rankscope.tui.dashboard.screens.base import Room, Screen

LOCKED = "commands are locked: u unlocks them"
STANDS_STILL = "this is not live: End goes back to the run as it is"
OVER = "the run is over, nothing can be commanded; 9 lists other runs"
PAUSED = "the run is paused: R resumes it first"
NOT_PAUSED = "the run is not paused: there is nothing to resume"
NO_TROUBLE = "no rank is in trouble"
NO_RANK = "no rank is selected here: 2 lists them all"
HUB_AWAY = "the hub is away and takes no command; what restarts it needs a few seconds"
HUB_SILENT = "the hub does not answer and takes no command until it does"
HUB_GONE = "the hub is gone and takes no command: v says how to have one again"
UNKNOWN = "how the ranks are is not known now: no hub is there to say it"
EMPTY = "there is nothing to filter here yet"
WAYS_OUT = ("go('help')", "leave", "go_back")
FIRST = "this is the first screen: q leaves, ? lists the keys"


def offered(screen: "Screen", picture: Picture, room: "Room", lines: int) -> list[Action]:
    """What the footer shows, the most important first. ``lines``: how many the screen lists."""
    shown = [
        action
        for action in footer_actions(screen.name, picture.leaving_ends_run)
        if not idle(action, screen, picture, room, lines)
        and (action.group != "control" or (action.name == "unlock") is bool(room.locked))
    ]
    if screen.name == "checkpoints" or (picture.status and picture.status.state == "paused"):
        # What one is here for comes before the ways to elsewhere.
        shown.sort(key=lambda each: 0 if each.name in WAYS_OUT else 1 + (each.group != "control"))
    return shown


def idle(
    action: Action, screen: "Screen", picture: Picture, room: "Room", lines: int | None = None
) -> str:
    """Why the key of ``action`` does nothing now, in one line; empty when it does something.

    A command that is only locked is not idle: its key says how to unlock it. ``lines``: how many
    the screen lists, where that is known.
    """
    if action.group == "control":
        return _of_command(command_of(action.name), picture, room)
    match action.name:
        case "trouble" if picture.unknown:
            return UNKNOWN
        case "trouble":
            well = all(mark.tone not in ("bad", "warn") for mark in picture.tally)
            return NO_TROUBLE if well else ""
        case "open":
            nothing = screen.opens(picture) is None and screen.selected(picture) is None
            return (screen.why_nothing_opens or NO_RANK) if nothing else ""
        case "filter":
            return EMPTY if screen.filterable and lines == 0 and not screen.filter else ""
        case "go_back":
            return FIRST if screen.name == "overview" and not screen.filter else ""
        case _:
            return ""


def no_command(picture: Picture, allowed: bool, why_not: str) -> str:
    """Why the run cannot be commanded from here at all; empty when it can."""
    if picture.ended and picture.snapshot.past is None:
        return OVER
    if not allowed:
        return why_not
    if picture.stands_still:
        return STANDS_STILL
    if picture.unknown:
        if picture.snapshot.replay:
            return HUB_GONE
        return HUB_AWAY if picture.no_hub else HUB_SILENT
    return OVER if picture.ended else ""


def _of_command(name: str, picture: Picture, room: "Room") -> str:
    """``name`` is empty for unlocking."""
    why = no_command(picture, room.may_unlock, room.locked)
    if why or not name or room.locked:
        return why
    possible = picture.possible
    if possible:
        return refusal(name, possible)
    status = picture.status  # a hub that does not say what is possible
    if status is None:
        return ""
    if status.state == "paused":
        return "" if name == "resume" else PAUSED
    return NOT_PAUSED if name == "resume" else ""
