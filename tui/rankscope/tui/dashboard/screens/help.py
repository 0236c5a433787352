"""All keys and marks."""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.help import help_lines
from rankscope.tui.dashboard.screens.base import Layout, Room, Screen, head_lines


class HelpScreen(Screen):
    name = "help"

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        lines = help_lines(room.width, picture.leaving_ends_run)
        return self.finish(picture, room, top, len(lines), lines.__getitem__)
