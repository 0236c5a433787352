"""What a demonstration plans, and what it says of itself."""

from pathlib import Path

import msgspec
import pytest

from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import History
from rankscope.tui.demo.plan import plan
from rankscope.tui.demo.progress import Losses, document, in_demo_words, progress_line, summary_line
from support.samples import OVERVIEW, STATUS


@pytest.mark.parametrize(
    ("trainer", "ranks", "steps", "text"),
    [
        ("ddp", 0, None, None),
        ("ddp", -1, None, None),
        ("ddp", 17, None, None),
        ("ddp", 2, 0, None),
        ("jax", 2, None, None),
        ("ddp", 2, None, Path("/nowhere/text")),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    trainer: str, ranks: int, steps: int | None, text: Path | None
) -> None:
    """One line and exit 2: no rank, too many, no step, no such trainer, no such text."""
    with pytest.raises(UserError) as caught:
        plan(trainer, ranks, steps, text, cores=2)
    assert caught.value.exit_code == Exit.USAGE
    assert "\n" not in str(caught.value)


def test_the_demo_is_an_ordinary_torchrun_job() -> None:
    """Loopback rendezvous on a free port, one thread a rank, this interpreter."""
    made = plan("ddp", 3, 7, None, cores=2)
    assert "--nproc-per-node=3" in made.command
    assert "--rdzv-endpoint=127.0.0.1:0" in made.command
    assert made.command[-2:] == ("--steps", "7")
    assert made.environ == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "the text has 9 tokens and one batch needs 512 (2 × 2 × 2 × 64); name a larger --text, "
            "or lower --batch-size, --seq-len or --accumulate",
            "the text has 9 tokens and one batch needs 512 (2 × 2 × 2 × 64); give a larger --text, "
            "or fewer --ranks",
        ),
        ("no text in /x; give another --text", "no text in /x; give another --text"),
        ("the text is not UTF-8", "the text is not UTF-8"),
    ],
)
def test_a_refusal_names_only_what_the_demo_has(said: str, told: str) -> None:
    """A trainer's own options are none of the demo's."""
    assert in_demo_words(said) == told


def test_the_first_and_the_last_loss_are_kept() -> None:
    """However many overviews it takes to see them; steps without a loss do not count."""
    losses = Losses()
    losses.take(History(step=[1, 2], loss=[None, 3.5], step_s=[0.1, 0.1]))
    losses.take(History(step=[2, 3], loss=[3.4, 3.0], step_s=[0.1, 0.1]))
    losses.take(History(step=[4], loss=[None], step_s=[0.1]))
    assert (losses.first, losses.last) == (3.5, 3.0)


def test_progress_is_one_line_with_the_verdict() -> None:
    """Step of how many, loss, speed, and how it is."""
    running = msgspec.structs.replace(OVERVIEW, state="running", verdict=None)
    assert progress_line(running, 400) == "step  12/400   loss 2.3100   6.13 step/s   ✓ healthy"
    assert "SIGKILL" in progress_line(OVERVIEW, 400)


def test_the_summary_says_whether_it_learned() -> None:
    """The document holds the status's keys and the losses."""
    losses = Losses(1, 5.5, 40, 2.25)
    well = msgspec.structs.replace(STATUS, state="finished", verdict=None)
    assert "loss 5.5000 to 2.2500, it learned" in summary_line(well, losses, 12.0)
    hurt = summary_line(STATUS, losses, 12.0)
    assert "rank 2 died: SIGKILL" in hurt
    assert "learned" not in hurt
    made = document(STATUS, losses)
    assert made["losses"] == {"first": 5.5, "last": 2.25}
    assert made["state"] == "failed"
