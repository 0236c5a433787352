"""``rankscope numerics`` as text and JSON, from a hub of its own."""

import json
import math

import msgspec
import pytest

from rankscope.protocol import jsontext
from rankscope.protocol.shapes import Numerics
from rankscope.tui.text.numerics import numerics_text
from rankscope.tui.text.output import untoned
from rankscope.tui.words import numerics as words
from support.samples import NUMERICS
from support.scenes.numerics import PARAMETER, healthy, nan, outlier, row


def shown(view: object, rank: int | None = None, width: int = 80) -> list[str]:
    assert isinstance(view, Numerics)
    lines = [untoned(line) for line in numerics_text(view, rank, width)]
    assert all(len(line) <= width for line in lines), lines
    return lines


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("scene", [healthy, nan, outlier])
def test_it_fits_its_width(scene: object, width: int) -> None:
    """Columns go from the right, sentences are wrapped."""
    shown(scene().view, 2, width)  # type: ignore[operator]


def test_what_is_wrong_comes_first_with_its_evidence() -> None:
    """Then the replicas, then one line a rank with its course."""
    lines = shown(nan().view)
    assert lines[0].startswith(f"✗ NaN in the gradient of {PARAMETER} on rank 5 in step 12481")
    assert any(line.startswith("  next: ") for line in lines)
    assert "replicas: equal up to step 12 480" in lines
    (culprit,) = [line for line in lines if line.strip().startswith("5 ")]
    assert "✗ origin" in culprit
    assert culprit.endswith("✗")


def test_where_it_began_stands_before_what_it_spoilt() -> None:
    """In a run whose every rank has NaN by now: the rank to blame first, then the spoilt ones."""
    view = nan().view
    assert isinstance(view, Numerics)
    rows = [row(rank, math.nan if rank % 3 else None) for rank in range(8)]
    flooded = msgspec.structs.replace(view, ranks=rows)
    lines = shown(flooded)
    at = next(at for at, line in enumerate(lines) if line.split()[:2] == ["rank", "state"])
    table = [line.split()[:3] for line in lines[at + 1 : at + 9]]
    assert table[0] == ["5", "✗", "origin"]
    assert [one[0] for one in table[1:]] == ["1", "2", "4", "7", "0", "3", "6"]
    assert [one[2] for one in table[1:]] == ["spoilt"] * 4 + ["finite"] * 3
    marks = words.marks_of(msgspec.structs.replace(flooded, findings=[]))
    assert [marks[rank].word for rank in (0, 5, 7)] == ["finite", "not finite", "not finite"]


def test_that_large_gradients_take_turns_is_said() -> None:
    """In the text, in JSON and on the screen: which ranks, and how often; nothing of it where all
    are read at every step."""
    view = healthy().view
    assert isinstance(view, Numerics)
    assert words.turns_text(view) == ""
    assert not any("take turns" in text for text in shown(view))
    alike = msgspec.structs.replace(view, ranks=[row(rank, large_every=8) for rank in range(8)])
    told = "large gradients take turns, read at every 8th step on ranks 0-7"
    assert told in shown(alike)
    assert json.loads(jsontext.dumps(alike))["ranks"][3]["large_every"] == 8
    every = {0: 2, 1: 16, 5: 16}
    rows = [row(rank, large_every=every.get(rank, 1)) for rank in range(8)]
    assert words.turns_text(msgspec.structs.replace(view, ranks=rows)) == (
        "large gradients take turns, read at every 2nd step on rank 0, at every 16th on ranks 1 5"
    )


def test_a_rank_asked_for_has_its_parameters_listed() -> None:
    """Those in trouble first, with the step they are of."""
    lines = shown(nan().view, 5)
    at = lines.index("parameters of rank 5, step 12 481, those in trouble first:")
    assert lines[at + 2].split() == ["nan", PARAMETER]
    assert [line for line in lines if line.strip().startswith("4 ")] == []


def test_signs_without_a_verdict_yet_are_told_as_they_are() -> None:
    """And what the agent cannot look at is named."""
    lines = shown(NUMERICS)
    assert lines[0] == "what was not finite:"
    assert "own gradient of blocks.1.mlp.up.weight: nan" in " ".join(lines)
    assert "not looked at on rank 1: sparse gradients: embedding.weight" in lines


def test_nothing_told_yet_is_said() -> None:
    """Before the first step, or with an agent of another version."""
    view = msgspec.structs.replace(
        NUMERICS, ranks=[], signs=[], steps=[], replicas_checked_step=None, left_out=0
    )
    assert shown(view) == ["replicas: not compared", "no rank has told of its gradients yet"]


def test_json_has_strings_for_what_is_not_finite() -> None:
    """Every JSON reader takes it."""
    printed = json.loads(jsontext.dumps(NUMERICS))
    assert printed["ranks"][0]["local_norm"] == "nan"
    assert printed["ranks"][0]["norms"][2] == "nan"


def test_courses_share_one_scale() -> None:
    """So that ranks can be compared; noise of less than a factor of ten stays low."""
    view = healthy().view
    assert isinstance(view, Numerics)
    between = words.span(view)
    assert between is not None
    low, high = between
    assert high - low == pytest.approx(math.log(10.0))
    assert words.course([1.0, None, 0.0, math.inf], 6, (0.0, 1.0)) == "  ▁ _✗"
