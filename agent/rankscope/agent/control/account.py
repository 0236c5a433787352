"""What a rank tells the hub of requests: how far it is with one, and what came of others."""

from typing import Any

from rankscope.agent.control.control import Control, Now
from rankscope.agent.control.turns import Ended
from rankscope.protocol import limits


class Account:
    """Decides what is due; whoever sends says what has left."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._said: tuple[Any, ...] | None = None
        self._due: tuple[Ended | None, tuple[Any, ...] | None] = None, None
        """What was due last: other threads go on while it leaves."""

    def again(self) -> None:
        """A hub that is new knows none of it."""
        self._said = None

    def due(self, now_s: float) -> dict[str, Any] | None:
        """The fields of the next ``Controlled``; None when there is nothing to say."""
        control = self.control
        if control.completed == control.start_step:
            return None  # the loop has given no boundary, and may never do so
        if not control.unable:
            try:
                control.turns.place()
            except Exception as error:  # noqa: BLE001 - told, and nothing else comes of it
                control.unable = str(error)
        # In this order: what came of a request is there before the request is gone, and of that
        # what is worth a word before the words.
        now = control.now(now_s)
        if control.turns.ended:
            ended = control.turns.ended[0]
            self._due = ended, None
            return of_ended(control, ended)
        key = self._key(now)
        if key == self._said:
            return None
        self._due = None, key
        return of_now(control, now)

    def sent(self) -> None:
        """What was due has left; what has come meanwhile is due next."""
        waiting, (ended, key) = self.control.turns.ended, self._due
        if ended is None:
            self._said = key
        elif waiting and waiting[0] is ended:
            waiting.popleft()

    def _key(self, now: Now) -> tuple[Any, ...]:
        """What is worth a word when it changes."""
        control = self.control
        request = None if now.request is None else now.request.number
        overruns = min(control.overrun, 1)
        of_rank = control.saver is not None, control.unable, control.stop_step, overruns
        return now.phase, request, now.boundary, now.text, *of_rank


def of_rank(control: Control) -> dict[str, Any]:
    return {
        "saver": control.saver is not None,
        "unable": control.unable[: limits.MAX_TEXT_CHARS],
        "stop_step": control.stop_step,
        "overrun": control.overrun,
    }


def of_now(control: Control, now: Now) -> dict[str, Any]:
    told = {
        "phase": now.phase,
        "phase_t_s": now.since_s,
        "boundary": now.boundary,
        "expires_s": now.expires_s,
        "text": now.text[: limits.MAX_TEXT_CHARS],
    }
    if now.request is not None:
        told["request"] = now.request.number
        told["command"] = now.request.command
        told["author"] = now.request.author[: limits.MAX_NAME_CHARS]
    return told | of_rank(control)


def of_ended(control: Control, ended: Ended) -> dict[str, Any]:
    return {
        "phase": ended.phase,
        "phase_t_s": ended.at_s,
        "request": ended.request.number,
        "command": ended.request.command,
        "author": ended.request.author[: limits.MAX_NAME_CHARS],
        "boundary": ended.boundary,
        "text": ended.text[: limits.MAX_TEXT_CHARS],
    } | of_rank(control)
