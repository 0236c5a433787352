"""The page of one rank."""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.detail import detail_lines
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, Screen, head_lines


class RankScreen(Screen):
    name = "rank"
    filterable = False

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=room.height < 30)
        detail = picture.snapshot.rank
        if detail is not None and detail.row.rank != self.rank:
            detail = None  # of the rank looked at before
        lines = detail_lines(self.rank, detail, picture, room.width, room.now_t_s)
        return self.finish(picture, room, top, len(lines), lines.__getitem__)

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        order = picture.order
        if direction in ("left", "right") and self.rank in order:
            at = order.index(self.rank) + (1 if direction == "right" else -1)
            self.select(order[at % len(order)])
        else:
            super().move(direction, picture, room)

    def selected(self, picture: Picture) -> int | None:
        return self.rank

    def chosen(self) -> int | None:
        return self.rank

    def select(self, rank: int) -> None:
        self.rank = rank
        self.offset = 0

    def rank_wanted(self) -> int | None:
        return self.rank
