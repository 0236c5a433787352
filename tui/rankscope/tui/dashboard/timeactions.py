"""What moves through time, for the registry."""

from rankscope.tui.dashboard.action import Action

SCRUB_S = 10

TIME_ACTIONS: tuple[Action, ...] = (
    Action(
        f"scrub({-SCRUB_S})",
        ("left_square_bracket",),
        "back in time",
        f"Go back {SCRUB_S} s in the recording; the run itself goes on.",
        "time",
    ),
    Action(
        f"scrub({SCRUB_S})",
        ("right_square_bracket",),
        "forward in time",
        f"Go forward {SCRUB_S} s in the recording.",
        "time",
    ),
    Action(
        "jump(-1)",
        ("left_curly_bracket",),
        "incident before",
        "Go back to the incident before this moment.",
        "time",
    ),
    Action(
        "jump(1)",
        ("right_curly_bracket",),
        "incident after",
        "Go forward to the next incident.",
        "time",
    ),
    Action(
        "hold",
        ("p",),
        "freeze / play",
        "Freeze the live picture, and let it go on; in the past, play and pause.",
        "time",
    ),
    Action("pace(1)", ("plus", "equals_sign"), "faster", "Play the past faster.", "time"),
    Action("pace(-1)", ("minus",), "slower", "Play the past slower.", "time"),
    Action(
        "to_end",
        ("end",),
        "back to live",
        "From the past back to live, or to a recording's end; live: to the last line.",
        "time",
    ),
)
