"""How far a save is, what came of earlier ones, and the commands that act on the run."""

from rankscope.protocol.shapes import CheckpointsView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.checkpoints import checkpoint_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines
from rankscope.tui.feed.poller import Wanted


class CheckpointsScreen(Screen):
    name = "checkpoints"

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("checkpoints")

    def selected(self, picture: Picture) -> int | None:
        """The slowest rank of a save."""
        view = picture.snapshot.view
        if isinstance(view, CheckpointsView) and view.slowest is not None:
            return view.slowest
        return picture.worst_rank

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        view = picture.snapshot.view
        lines = []
        if isinstance(view, CheckpointsView):
            lines = checkpoint_lines(view, picture, room.width, room.locked)
        return self.finish(picture, room, top, len(lines), lines.__getitem__)
