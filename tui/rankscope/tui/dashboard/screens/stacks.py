"""Where every rank is, equal places together, the odd one out on top."""

from rankscope.protocol.shapes import StacksView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.stacks import stack_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines
from rankscope.tui.feed.poller import Wanted


class StacksScreen(Screen):
    name = "stacks"

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("stacks")

    def selected(self, picture: Picture) -> int | None:
        """The first rank of the place on top."""
        view = picture.snapshot.view
        if isinstance(view, StacksView) and view.groups:
            return view.groups[0].ranks[0]
        return picture.worst_rank

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        view = picture.snapshot.view
        lines = stack_lines(view, picture, room.width) if isinstance(view, StacksView) else []
        return self.finish(picture, room, top, len(lines), lines.__getitem__)
