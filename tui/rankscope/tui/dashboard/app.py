"""The way in: start the feed, then load the screen while the hub is being asked."""

import sys
from collections.abc import Callable

from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.leaving import Leaving
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.terminal import environment_at_start, is_usable, shows_utf8
from rankscope.tui.feed.poller import Poller, Snapshot

PollerFactory = Callable[[Callable[[Snapshot], None]], Poller]
"""Makes the feed, given what to call with each new snapshot."""


def run_dashboard(poller_factory: PollerFactory, *, title: str, readonly: bool) -> int:
    """Show the dashboard until the user leaves; the exit code of the command.

    0 after ``q``, 130 after Ctrl-C, 128+n after a signal, 70 when the dashboard itself failed.
    ``title`` is shown until the run's own name is known. Raises :class:`UserError` when there is
    no terminal: ask :func:`rankscope.tui.dashboard.terminal.is_usable` first to do something else.
    """
    if not is_usable():
        raise UserError("the dashboard needs a terminal; in a pipe use: rankscope status")
    mailbox: Mailbox[Snapshot] = Mailbox()
    poller = poller_factory(mailbox.put)
    poller.start()
    try:
        with Leaving() as leaving:
            from rankscope.tui.dashboard.console import Dashboard

            app = Dashboard(
                poller,
                mailbox,
                leaving,
                title=title,
                readonly=readonly,
                utf8=shows_utf8(environment_at_start()),
            )
            if leaving.code is None:
                app.run(mouse=False)
            code = leaving.code
        if app.crash is not None:
            print(f"rankscope: {app.crash}", file=sys.stderr)
        return code if code is not None else app.return_code or 0
    finally:
        mailbox.listen(None)
        poller.stop()
