"""The way in: ask the hub, draw its first answer, then load what makes it interactive."""

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.first_paint import paint_first
from rankscope.tui.dashboard.leaving import Leaving
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.source import FEED_ENDS_WITHIN_S, Choice, Source
from rankscope.tui.dashboard.terminal import environment_at_start, is_usable, keys_held, shows_utf8
from rankscope.tui.feed.poller import Snapshot

if TYPE_CHECKING:
    from rankscope.tui.dashboard.console import Dashboard

FIRST_ANSWER_WITHIN_S = 0.3
"""How long the first picture waits for a hub, which on a quiet machine answers in a tenth of it."""

SWITCH_S = 0.001
"""How long a key may wait for the thread that reads what a hub answers; Python's own is 5 ms, and a
key changes threads several times on its way to the screen."""


def run_dashboard(
    source: Source,
    *,
    choice: Choice | None = None,
    unlocked: bool = False,
    ends_run: bool = False,
    at_last: Callable[[int], int] = int,
) -> int:
    """Show the dashboard until the user leaves; the exit code of the command.

    0 after ``q``, 130 after Ctrl-C, 128+n after a signal, 70 when the dashboard itself failed.
    Mouse reporting stays off: the terminal's own selecting and copying go on working, and keys
    reach everything. ``choice``: what other runs can be gone over to. ``unlocked``: commands need
    no unlocking first. ``ends_run`` changes what is said of leaving, ``at_last`` what is done where
    the terminal keeps it from ending (:class:`~.leaving.Leaving`). Raises :class:`UserError`
    when there is no terminal: :func:`~.terminal.is_usable` tells beforehand.
    """
    if not is_usable():
        raise UserError("the dashboard needs a terminal; in a pipe use: rankscope status")
    utf8 = shows_utf8(environment_at_start())
    mailbox: Mailbox[Snapshot] = Mailbox()
    poller = source.feed(mailbox.put)
    poller.start()
    app: Dashboard | None = None
    try:
        with Leaving(at_last) as leaving:
            first = mailbox.peek(FIRST_ANSWER_WITHIN_S) or poller.latest
            colour = "NO_COLOR" not in os.environ
            try:
                with keys_held():
                    picture = Picture(first, source.title, source.readonly, ends_run)
                    paint_first(picture, utf8=utf8, colour=colour)
                    make = _load()
                app = make(
                    poller,
                    mailbox,
                    leaving,
                    title=source.title,
                    readonly=source.readonly,
                    utf8=utf8,
                    ends_run=ends_run,
                    source=source,
                    choice=choice,
                    unlocked=unlocked,
                )
                if leaving.code is None:
                    app.run(mouse=False)
                else:
                    leaving.restore()
            except BaseException:
                leaving.restore()
                raise
            code = leaving.code
        if app.crash is not None:
            print(f"rankscope: {app.crash}", file=sys.stderr)
        return code if code is not None else app.return_code or 0
    finally:
        mailbox.listen(None)
        if app is not None:
            app.end_feed()
        else:
            poller.stop(FEED_ENDS_WITHIN_S)


def _load() -> "type[Dashboard]":
    """The Textual application. Its import takes most of the time a start takes."""
    try:
        from rankscope.tui.dashboard.console import Dashboard
    except ModuleNotFoundError as error:
        if error.name != "textual":
            raise
        raise UserError("the dashboard needs textual: pip install 'rankscope[tui]'") from None
    gc.freeze()  # what was loaded stays: to look through it again and again would hold up keys
    sys.setswitchinterval(SWITCH_S)
    return Dashboard
