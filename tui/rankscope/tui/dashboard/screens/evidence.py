"""What the verdict rests on, and every other open finding."""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.evidence import evidence_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines


class EvidenceScreen(Screen):
    name = "evidence"

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        lines = evidence_lines(picture, room.width)
        return self.finish(picture, room, top, len(lines), lines.__getitem__)

    def selected(self, picture: Picture) -> int | None:
        return picture.worst_rank
