"""No value that a user can bring about silences a rank."""

import math
from typing import Any

import pytest

from rankscope.agent import frames, given
from rankscope.agent.probes.step import MAX_TOKENS, _count
from rankscope.protocol import codec, limits
from rankscope.protocol import messages as m

HEAD = (0, 0, 1, 1.0)
RAISED: dict[str, Any] = {
    "type": "E",
    "source": "",
    "from_peer": False,
    "step": 1,
    "event_t_s": 1.0,
}


def raised(**fields: Any) -> m.Raised:
    return m.Raised(
        *HEAD, **(RAISED | {"message": "", "traceback": "", "phase": m.Phase.OTHER} | fields)
    )


def sent(message: m.Message) -> Any:
    made = frames.frame(message)
    assert made is not None
    assert len(made) <= limits.MAX_INBOUND_FRAME_BYTES
    return codec.decode(made)


def test_what_can_be_sent_is_sent_as_it_is() -> None:
    """An ordinary message is the codec's own frame."""
    message = raised(message="é")
    assert frames.frame(message) == codec.encode(message)


def test_half_a_character_is_written_out() -> None:
    """File names of other encodings show as escapes; the rest of the text stays."""
    assert sent(raised(message="no x\udcff")).message == "no x\\udcff"


@pytest.mark.parametrize("value", [2**64, 2**70, -(2**70)])
def test_numbers_beyond_the_wires_are_its_largest(value: int) -> None:
    """A number of any size goes out, as near as it can be."""
    said = sent(m.ProbeFault(*HEAD, probe="p", error="e", step=abs(value)))
    assert said.step == limits.MAX_COUNT
    assert frames.mended(value) in (limits.MAX_COUNT, -limits.MAX_COUNT)


def test_a_traceback_in_a_wide_script_keeps_its_end() -> None:
    """64 KiB of four-byte characters would make the hub hang up: the last part is sent."""
    long = "\N{SNAKE}" * limits.MAX_TRACEBACK_CHARS
    said = sent(raised(message="\N{SNAKE}" * limits.MAX_TEXT_CHARS, traceback=long + "end"))
    assert said.traceback.endswith("\N{SNAKE}end")


def test_large_groups_go_without_their_ranks() -> None:
    """Many groups of thousands of ranks keep their names and sizes."""
    group = m.Group("g", "", "nccl", 8192, tuple(range(8192)))
    said = sent(m.Groups(*HEAD, groups=(group,) * 64))
    assert len(said.groups) == 64
    assert said.groups[0].size == 8192
    assert said.groups[0].ranks == ()


def test_what_cannot_be_sent_at_all_is_none() -> None:
    """The sender drops it, and goes on with the next."""
    assert frames.frame(raised(message=object())) is None


@pytest.mark.parametrize(
    ("tokens", "count"),
    [
        (8, 8),
        (-1, 0),
        (2**70, MAX_TOKENS),
        (3.7, 3),
        (math.nan, None),
        (math.inf, None),
        ("x", None),
    ],
)
def test_tokens_are_a_count_or_nothing(tokens: Any, count: int | None) -> None:
    """Whatever end_step is given, no step is lost for it."""
    assert _count(tokens) == count


@pytest.mark.parametrize(
    ("name", "text"), [(None, ""), (5, "5"), ("x\udcff", "x\\udcff"), ("x" * 9999, "x" * 256)]
)
def test_any_name_is_a_text(name: Any, text: str) -> None:
    """What attach is given as a name can be written into every file and message."""
    assert given.run_name(name) == text


@pytest.mark.parametrize(
    ("start", "step"), [(7, 7), ("12", 12), ("abc", 0), (-5, 0), (2**65, 0), (None, 0)]
)
def test_any_start_step_is_a_step(start: Any, step: int, caplog: pytest.LogCaptureFixture) -> None:
    """What is no step number counts as 0 and is said in one line."""
    assert given.start_step(start) == step
    assert ("start_step" in caplog.text) == (step == 0)
