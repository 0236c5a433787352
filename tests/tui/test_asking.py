"""What is in work as a command that waits for its end looks at it."""

import pytest

from rankscope.protocol.shapes import CheckpointsView, Command
from rankscope.tui.asking import in_work, line
from rankscope.tui.text.output import untoned


def view(command: Command | None) -> CheckpointsView:
    return CheckpointsView(
        run="r",
        pending="",
        request=0,
        ranks=[],
        left_out=0,
        slowest=None,
        outcomes=[],
        last=None,
        command=command,
    )


@pytest.mark.parametrize("ending", ["cancel", "resume"])
def test_what_ends_a_request_is_in_work_as_long_as_that_is(ending: str) -> None:
    """However long the ranks take to answer: views tell of what is to be ended."""
    saved = Command(7, "checkpoint", "ada", 1.0, "agreed", "pending: to be cancelled")
    assert in_work(view(saved), ending, 8)
    assert not in_work(view(None), ending, 8)
    assert in_work(view(saved), "checkpoint", 7)
    assert not in_work(view(saved), "checkpoint", 9)


@pytest.mark.parametrize(
    ("state", "text", "told"),
    [
        ("paused", "paused after step 30", "✓ paused after step 30"),
        ("done", "paused after step 30, resumed by ada", "✓ done   paused after step 30"),
        ("cancelled", "cancelled by ada@laptop", "✗ cancelled by ada@laptop"),
        ("given-up", "given up: rank 1 did not come", "✗ given up rank 1 did not come"),
        ("cancelled", "cancelled", "✗ cancelled"),
        ("refused", "refusedly", "✗ refused   refusedly"),
    ],
)
def test_what_a_command_came_to_is_said_once(state: str, text: str, told: str) -> None:
    """However the text begins: its first word is not the mark's over again."""
    assert untoned(line(Command(7, "pause", "ada", 1.0, state, text), None)).startswith(told)
