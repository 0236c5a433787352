"""The Textual application: it takes snapshots and keys, and draws. Nothing is decided here."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.events import Event, Key, Paste, Resize
from textual.filter import LineFilter
from textual.screen import Screen as TextualScreen

from rankscope.protocol.exits import Exit
from rankscope.tui.dashboard.action import Action, ScreenName
from rankscope.tui.dashboard.actions import ACTIONS, actions
from rankscope.tui.dashboard.control import over
from rankscope.tui.dashboard.controlkeys import ControlKeys
from rankscope.tui.dashboard.escape import install as read_escape_at_once
from rankscope.tui.dashboard.leaving import Leaving, write_crash_file
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import seen
from rankscope.tui.dashboard.render.line import Line
from rankscope.tui.dashboard.runkeys import RunKeys
from rankscope.tui.dashboard.runwatch import SELDOM_S, RunWatch, begun_since
from rankscope.tui.dashboard.screens.base import NO_FURTHER, Direction, Room, Screen
from rankscope.tui.dashboard.screens.offers import idle
from rankscope.tui.dashboard.source import FEED_ENDS_WITHIN_S, Choice, Source
from rankscope.tui.dashboard.timekeys import TimeKeys
from rankscope.tui.dashboard.toolkeys import ToolKeys
from rankscope.tui.dashboard.widgets.ascii_filter import AsciiFilter
from rankscope.tui.dashboard.widgets.canvas import Canvas
from rankscope.tui.dashboard.widgets.theme_filter import ThemeFilter
from rankscope.tui.feed.commander import Word
from rankscope.tui.feed.poller import Poller, Snapshot, Wanted

TICK_S = 0.5
"""Numbers and ages move at this pace, however often snapshots come: it is what one can read."""


NOTICE_S = 20.0
"""What a key did is told for so long, or until the next key."""

KEYS = {key: action for action in ACTIONS for key in action.keys}

read_escape_at_once()


class Bare(TextualScreen[None], inherit_bindings=False):
    """Textual's screen without its keys: Tab is ours."""


class Dashboard(TimeKeys, ControlKeys, ToolKeys, RunKeys, App[None], inherit_bindings=False):
    """One canvas over the whole terminal. Textual's own keys are off: its Ctrl-Q leaves at once."""

    BINDINGS = [  # noqa: RUF012 - Textual's own annotation
        Binding(key, action.name, action.label, show=False)
        for action in ACTIONS
        for key in action.keys
    ]
    ESCAPE_TO_MINIMIZE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    SearchIcon { display: none; }
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
        source: Source | None = None,
        choice: Choice | None = None,
        unlocked: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)  # before the theme: the colour filters are made there
        self.set_reactive(App.theme, "ansi-dark")
        self.stylesheet.set_variables(self.get_css_variables())  # made before the theme was known
        self.animation_level = "none"
        self._poller = poller
        self._mailbox = mailbox
        self._leaving = leaving
        self._choice = choice
        self._watch = RunWatch(None if choice is None else choice.look)
        self._navigation = Navigation(self._watch)
        self._unlocked = unlocked
        self._control = self._take_control(source)
        self._picture = Picture(mailbox.take() or poller.latest, title, readonly, ends_run)
        self._view_behind = self._picture.snapshot.view
        self._notice = "" if self._control.may_unlock or not unlocked else self._control.locked
        self._noticed = ("", 0.0)
        """The notice that is shown, and since when."""
        self._canvas = Canvas(utf8=utf8)
        self._ascii = None if utf8 else AsciiFilter()
        self._drawn_t_s = 0.0
        self.lines: Sequence[Line] = ()
        """What was drawn last."""
        self._listed = 0
        """How many lines the screen lists, the unseen ones among them."""
        self.crash: str | None = None
        """What to tell when the dashboard failed by its own fault."""

    # --- from start to end -------------------------------------------------------------------

    def get_default_screen(self) -> TextualScreen[object]:
        return cast(TextualScreen[object], Bare(id="_default"))

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
                loop.call_soon_threadsafe(self._guarded, self._on_mail)

        self._notify = notify

        def hear(word: Word) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._guarded, partial(self._on_word, word))

        self._hear = hear

    def on_mount(self) -> None:
        self._mailbox.listen(self._notify)
        self.draw()
        self._on_mail()
        self.set_interval(TICK_S, self._on_tick)

    def _leave(self, code: int) -> None:
        self._leaving.begin(code)
        self._mailbox.listen(None)
        self.exit(return_code=code)

    def end_feed(self) -> None:
        """Ask nothing any more. For whoever started the app, once it has ended."""
        self._mailbox.listen(None)
        self._poller.stop(FEED_ENDS_WITHIN_S)
        if self._commander is not None:
            self._commander.stop()

    def _handle_exception(self, error: Exception) -> None:
        """Textual's default prints every frame's locals, keys among them: write a file instead."""
        if self.crash is None and not self._leaving.code:
            path = write_crash_file(error)
            where = "" if path is None else f"; details in {path}"
            self.crash = f"the dashboard failed: {type(error).__name__}: {error}{where}"
        self._leave(self._leaving.code or Exit.BUG)
        self._close_messages_no_wait()

    def _guarded(self, news: Callable[[], None]) -> None:
        """Call ``news`` from the loop itself, which would only log what it raises: the screen would
        stand still for ever, and look alive."""
        try:
            news()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the dashboard in words
            self._handle_exception(error)

    def panic(self, *renderables: object) -> None:
        """The thread that reads keys failed: the terminal is gone."""
        self.crash = self.crash or "the terminal went away"
        self._leave(self._leaving.code or Exit.BUG)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = [*super().get_line_filters(), *([self._ascii] if self._ascii else [])]
        return filters if self._look == "colour" else [*filters, ThemeFilter(self._look)]

    # --- drawing -----------------------------------------------------------------------------

    def draw(self) -> None:
        """Bring the canvas up to date."""
        room = self._room()
        if room.width < 1 or room.height < 1:
            return
        self._drawn_t_s = room.now_t_s
        # While the recording is being opened it is this dashboard that does not ask the hub.
        asks = self._poller.times.is_live or self._picture.snapshot.replay
        self._picture = seen(self._picture, room.now_t_s if asks else 0.0)
        layout = self._navigation.screen.layout(self._shown(), room)
        self._listed = layout.count
        lines = layout.lines(room.height)
        if self._control.question:
            lines = over(lines, self._control.lines(self._picture, room.width), room.height)
        self.lines = lines
        self._canvas.show(lines)

    def _shown(self) -> Picture:
        """The picture; behind a question the screen keeps the view it had."""
        if not self._control.question:
            past = not self._poller.times.is_live and not self._picture.snapshot.replay
            opening = past and self._picture.snapshot.past is None
            return replace(self._picture, opening=True) if opening else self._picture
        return replace(
            self._picture, snapshot=replace(self._picture.snapshot, view=self._view_behind)
        )

    def _fresh_notice(self, now_t_s: float) -> str:
        """What the last key did, for as long as that is news."""
        if self._notice != self._noticed[0]:
            self._noticed = (self._notice, now_t_s)
        return self._notice if now_t_s - self._noticed[1] < NOTICE_S else ""

    def _room(self) -> Room:
        now_t_s = time.monotonic()
        return Room(
            self.size.width,
            self.size.height,
            now_t_s,
            self._fresh_notice(now_t_s) or self._begun_since(),
            None if self._typed is None else self._typed.text,
            "commands unlocked" if self._control.unlocked and self._goes_on() else "",
            self._control.locked,
            self._control.may_unlock,
            bool(self._control.question),
        )

    def _begun_since(self) -> str:
        """Over a run that has ended: that another one has begun, which is perhaps what is meant."""
        overview = self._picture.overview
        if overview is None or not self._picture.ended or self._navigation.screen.name == "runs":
            return ""
        self._watch.wanted(SELDOM_S)
        return begun_since(self._watch.latest or (), overview.run)

    def _goes_on(self) -> bool:
        """Whether what is shown is the run as it is, which can be commanded."""
        picture = self._picture
        return not (picture.ended or picture.stands_still or picture.unknown)

    def on_resize(self, event: Resize) -> None:
        self.draw()

    def _on_mail(self) -> None:
        """Take the newest snapshot; draw it at once only when it changes what one must know."""
        snapshot = self._mailbox.take()
        if snapshot is None or self._holds(snapshot):
            return
        self._notice = self._time_notice() or self._notice
        before = self._picture
        self._picture = replace(before, snapshot=snapshot)
        if self._overtaken():
            self._notice = ""
        self._ask_view()
        if self._picture.news != before.news or self._due():
            self.draw()

    def _on_tick(self) -> None:
        self._on_mail()  # what came while a slow terminal held up the loop is not old
        if self._due():
            self.draw()

    def _due(self) -> bool:
        return time.monotonic() - self._drawn_t_s >= 0.9 * TICK_S

    # --- keys that answer or type, before any action ------------------------------------------

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key) and not event.is_forwarded and len(self.screen_stack) == 1:
            # Here and now: by way of Textual's bindings an action runs later, and what was typed
            # ahead of it would be taken for other keys.
            if self._takes(event):
                return
            if event.key in KEYS:
                await self._do(KEYS[event.key])
                return
            if event.is_printable:
                self._moved(f"{event.character} means nothing here: ? lists the keys")
                return
        if isinstance(event, Paste) and self._typed is not None and not event.is_forwarded:
            self._typed.paste(event.text)
            self._filter_changed(self._typed.text)
            return
        await super().on_event(event)

    async def _do(self, action: Action) -> None:
        """What the action does, or why it does nothing."""
        screen, room = self._navigation.screen, self._room()
        why = idle(action, screen, self._picture, room, self._listed)
        if why:
            self._refusal = why if action.group == "control" else ""
            self._moved(why)
        else:
            await self.run_action(action.name)

    def _takes(self, event: Key) -> bool:
        """Whether the key belongs to a question or to what is being typed."""
        if event.key == "ctrl+c":
            return False
        if self._control.question:
            self._answer(event.key)
            return True
        if self._typed is None:
            return False
        end = self._typed.key(event.key, event.character)
        text = "" if end == "dropped" else self._typed.text
        if end != "typing":
            self._typed = None
        self._filter_changed(text, settled=end == "done")
        return True

    # --- actions: one method for each name of the registry -----------------------------------

    def action_go(self, name: str) -> None:
        self._navigation.go(cast(ScreenName, name))
        self._moved()

    def action_go_back(self) -> None:
        if self._navigation.screen.filter:
            self._navigation.screen.filter = ""
        else:
            self._navigation.go_back()
        self._moved()

    def action_turn(self, step: int) -> None:
        self._navigation.turn(step)
        self._moved()

    def action_open(self) -> None:
        path = self._navigation.screen.opens(self._picture)
        if path is not None:
            self._open_run(path)
            return
        rank = self._navigation.screen.selected(self._picture)
        if rank is not None:
            self._navigation.open(rank)
        self._moved()

    def action_move(self, direction: str) -> None:
        screen = self._navigation.screen
        before = self.lines[1:]  # the first line has an age in it
        screen.move(cast(Direction, direction), self._picture, self._room())
        self._moved()
        if self.lines[1:] == before:
            self._moved(NO_FURTHER[cast(Direction, direction)])

    def action_trouble(self) -> None:
        self._navigation.trouble(self._picture)
        self._moved()

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
        screen: Screen = self._navigation.screen
        asked = Wanted("checkpoints") if self._control.question else None
        self._poller.request_view(asked or screen.view_wanted(self._picture))

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """The palette's entries: the registry's, and nothing else; what does nothing now says why,
        by the rule of the footer."""
        room = self._room()
        for action in actions(self._picture.leaving_ends_run):
            if not action.palette:
                continue
            shown = self._navigation.screen
            why = idle(action, shown, self._picture, room, self._listed)
            if action.group == "control" and action.name != "unlock":
                why = why or room.locked
            name = f"{action.label} ({action.key_text})"
            yield SystemCommand(
                f"{name} · not now" if why else name, why or action.help, partial(self._do, action)
            )
