"""What screens share that list things which are no ranks: one is selected, by a name of its own."""

from collections.abc import Sequence

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Direction, Room, Screen


class ListingScreen(Screen):
    """Until one is selected by hand, the first is."""

    def __init__(self) -> None:
        super().__init__()
        self._chosen: str | None = None

    def names(self, picture: Picture) -> Sequence[str]:
        """Of what is listed, in its order."""
        raise NotImplementedError

    def at(self, names: Sequence[str]) -> int:
        """The line of the selected one."""
        chosen = self._chosen
        return names.index(chosen) if chosen is not None and chosen in names else 0

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        names = self.names(picture)
        if not names:
            return
        page = max(1, self.layout(picture, room).seen(room.height) - 1)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        at = self.at(names) + steps.get(direction, 0)
        if direction in ("first", "last"):
            at = 0 if direction == "first" else len(names) - 1
        self._chosen = names[max(0, min(len(names) - 1, at))]

    def find(self, step: int, picture: Picture, room: Room) -> bool:
        if step:
            self.move("down" if step > 0 else "up", picture, room)
        return bool(self.names(picture))
