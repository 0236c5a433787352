"""How much memory each rank takes over the run, and when it will be full."""

from rankscope.protocol.shapes import MemoryView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.memory import memory_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines
from rankscope.tui.feed.poller import Wanted


class MemoryScreen(Screen):
    name = "memory"

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("memory")

    def selected(self, picture: Picture) -> int | None:
        return picture.worst_rank

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        view = picture.snapshot.view
        lines = memory_lines(view, picture, room.width) if isinstance(view, MemoryView) else []
        return self.finish(picture, room, top, len(lines), lines.__getitem__)
