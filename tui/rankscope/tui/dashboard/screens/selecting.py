"""What the screens share on which a rank is selected: the overview's grid and the table."""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Screen


class SelectingScreen(Screen):
    """Until a rank is selected by hand, the one to blame is; else the first."""

    def __init__(self) -> None:
        super().__init__()
        self._cursor: int | None = None
        self._follow = False

    def selected(self, picture: Picture) -> int | None:
        if self._cursor is not None:
            return self._cursor
        if picture.worst_rank is not None:
            return picture.worst_rank
        return picture.order[0] if picture.order else None

    def chosen(self) -> int | None:
        return self._cursor

    def select(self, rank: int) -> None:
        self._cursor = rank
        self._follow = True
