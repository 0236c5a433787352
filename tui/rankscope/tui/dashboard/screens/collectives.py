"""How far the ranks of each process group are, and why they do not go on."""

from rankscope.protocol.shapes import Collectives
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.collectives import collective_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines
from rankscope.tui.feed.poller import Wanted


class CollectivesScreen(Screen):
    name = "collectives"

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("collectives")

    def selected(self, picture: Picture) -> int | None:
        return picture.worst_rank

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        view = picture.snapshot.view
        lines = collective_lines(view, picture, room.width) if isinstance(view, Collectives) else []
        return self.finish(picture, room, top, len(lines), lines.__getitem__)
