"""The Textual application: it takes snapshots and keys, and draws. Nothing is decided here."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.events import Resize
from textual.filter import LineFilter
from textual.screen import Screen as TextualScreen

from rankscope.protocol.exits import Exit
from rankscope.tui.dashboard.actions import ACTIONS, ScreenName, actions
from rankscope.tui.dashboard.leaving import Leaving, write_crash_file
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Direction, Room
from rankscope.tui.dashboard.widgets.ascii_filter import AsciiFilter
from rankscope.tui.dashboard.widgets.canvas import Canvas
from rankscope.tui.feed.poller import Poller, Snapshot

TICK_S = 0.5
"""Numbers and ages move at this pace, however often snapshots come: it is what one can read."""


class Dashboard(App[None]):
    """One canvas over the whole terminal."""

    BINDINGS = [  # noqa: RUF012 - Textual's own annotation
        Binding(key, action.name, action.label, show=False)
        for action in ACTIONS
        for key in action.keys
    ]
    ESCAPE_TO_MINIMIZE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    """

    def __init__(
        self,
        poller: Poller,
        mailbox: Mailbox[Snapshot],
        leaving: Leaving,
        *,
        title: str,
        readonly: bool,
        utf8: bool,
        ends_run: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)  # before the theme: the colour filters are made there
        self.set_reactive(App.theme, "ansi-dark")
        self.stylesheet.set_variables(self.get_css_variables())  # made before the theme was known
        self.animation_level = "none"
        self._poller = poller
        self._mailbox = mailbox
        self._leaving = leaving
        self._navigation = Navigation()
        self._picture = Picture(mailbox.take() or poller.latest, title, readonly, ends_run)
        self._notice = ""
        self._canvas = Canvas()
        self._ascii = None if utf8 else AsciiFilter()
        self._drawn_t_s = 0.0
        self.crash: str | None = None
        """What to tell when the dashboard failed by its own fault."""

    # --- from start to end -------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_load(self) -> None:
        loop = asyncio.get_running_loop()

        def ask(code: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(self._leave, code)

        self._leaving.when_asked(ask)

        def notify() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._on_mail)

        self._notify = notify

    def on_mount(self) -> None:
        self._mailbox.listen(self._notify)
        self.draw()
        self._on_mail()
        self.set_interval(TICK_S, self._on_tick)

    def _leave(self, code: int) -> None:
        self._leaving.begin(code)
        self._mailbox.listen(None)
        self.exit(return_code=code)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's default prints every frame's locals, keys among them: write a file instead."""
        if self.crash is None and not self._leaving.code:
            path = write_crash_file(error)
            where = "" if path is None else f"; details in {path}"
            self.crash = f"the dashboard failed: {type(error).__name__}: {error}{where}"
        self._leave(self._leaving.code or Exit.BUG)
        self._close_messages_no_wait()

    def panic(self, *renderables: object) -> None:
        """The thread that reads keys failed: the terminal is gone."""
        self.crash = self.crash or "the terminal went away"
        self._leave(self._leaving.code or Exit.BUG)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return filters if self._ascii is None else [*filters, self._ascii]

    # --- drawing -----------------------------------------------------------------------------

    def draw(self) -> None:
        """Bring the canvas up to date."""
        room = self._room()
        if room.width < 1 or room.height < 1:
            return
        self._drawn_t_s = room.now_t_s
        screen = self._navigation.screen
        self._canvas.show(screen.layout(self._picture, room).lines(room.height))

    def _room(self) -> Room:
        return Room(self.size.width, self.size.height, time.monotonic(), self._notice)

    def on_resize(self, event: Resize) -> None:
        self.draw()

    def _on_mail(self) -> None:
        """Take the newest snapshot; draw it at once only when it changes what one must know."""
        snapshot = self._mailbox.take()
        if snapshot is None:
            return
        before = self._picture
        self._picture = Picture(snapshot, before.title, before.readonly, before.ends_run)
        self._ask_view()
        if self._picture.news != before.news or self._due():
            self.draw()

    def _on_tick(self) -> None:
        if self._due():
            self.draw()

    def _due(self) -> bool:
        return time.monotonic() - self._drawn_t_s >= 0.9 * TICK_S

    # --- actions: one method for each name of the registry -----------------------------------

    def action_go(self, name: str) -> None:
        self._navigation.go(cast(ScreenName, name))
        self._moved()

    def action_go_back(self) -> None:
        self._navigation.go_back()
        self._moved()

    def action_open(self) -> None:
        rank = self._navigation.screen.selected(self._picture)
        if rank is not None:
            self._navigation.open(rank)
        self._moved("" if rank is not None else "no rank to open yet")

    def action_move(self, direction: str) -> None:
        screen = self._navigation.screen
        screen.move(cast(Direction, direction), self._picture, self._room())
        self._moved()

    def action_trouble(self) -> None:
        found = self._navigation.trouble(self._picture)
        self._moved("" if found else "no rank is in trouble")

    def action_redraw(self) -> None:
        self.refresh(repaint=True)
        self._canvas.refresh()

    def action_leave(self) -> None:
        self._leave(Exit.FINE)

    def action_interrupt(self) -> None:
        self._leave(Exit.INTERRUPTED)

    def _moved(self, notice: str = "") -> None:
        self._notice = notice
        self._poller.request_rank(self._navigation.screen.rank_wanted())
        self._ask_view()
        self.draw()

    def _ask_view(self) -> None:
        self._poller.request_view(self._navigation.screen.view_wanted(self._picture))

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """The palette's entries: the registry's, and nothing else."""
        for action in actions(self._picture.ends_run):
            if action.palette:
                yield SystemCommand(
                    f"{action.label} ({action.key_text})", action.help, self._runner(action.name)
                )

    def _runner(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self.run_action(name)

        return run
