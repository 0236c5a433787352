"""A checkpoint that holds NaN says so, and no run goes on from it by itself."""

import math
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.agent.checkpoint import Checkpointer, Outcome, notfinite
from rankscope.agent.checkpoint.notfinite import FINITE, INF, NAN, NOT_LOOKED, Look
from rankscope.agent.control.reports import of_outcome
from rankscope.protocol import checkpoints, coverage
from rankscope.protocol.manifest import (
    MANIFEST,
    FileEntry,
    Receipt,
    decode_receipt,
    encode,
    receipt_name,
)

pytestmark = pytest.mark.processes

DTYPES = {name: getattr(torch, name) for name in notfinite.FORMATS}
REAL = [name for name in DTYPES if not name.startswith("complex")]


def found(tensor: torch.Tensor, name: str) -> str:
    raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    look = Look(lambda begin, end, step: raw[begin:end:step], name)
    look.at(0, len(raw))
    return look.found


def truth(tensor: torch.Tensor) -> str:
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    wide = numbers.to(torch.float64)
    return NAN if wide.isnan().any() else INF if wide.isinf().any() else FINITE


@pytest.mark.parametrize("name", sorted(DTYPES))
@settings(deadline=None, max_examples=60)
@given(raw=st.binary(min_size=16, max_size=512))
def test_what_is_found_in_any_bytes_is_what_torch_finds(name: str, raw: bytes) -> None:
    """Of every type that is looked at."""
    raw = raw[: len(raw) // 16 * 16]
    tensor = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(DTYPES[name])
    assert found(tensor, name) == truth(tensor)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf, 0.0, 1.0])
def test_one_number_is_found_wherever_it_is(name: str, value: float) -> None:
    """Beside the largest finite numbers there are, whose bytes are nearly the same."""
    dtype = DTYPES[name]
    largest = torch.finfo(dtype).max
    for at in (0, 1, 500, 998, 999):
        tensor = torch.full((1000,), largest, dtype=torch.float64)
        tensor[1::2] = -largest
        tensor[at] = value
        narrow = tensor.to(dtype)
        assert found(narrow, name) == truth(narrow)


def test_a_block_beyond_the_first_is_looked_at_and_nan_goes_before_inf() -> None:
    """In whichever order they come."""
    for first, second, expected in ((math.inf, math.nan, NAN), (0.0, math.inf, INF)):
        tensor = torch.zeros(3 * notfinite.BLOCK_BYTES // 4 + 5)
        tensor[7] = first
        tensor[-1] = second
        assert found(tensor, "float32") == expected
        assert found(tensor.flip(0), "float32") == expected


def test_other_types_are_not_looked_at() -> None:
    """Whole numbers are always finite, and a few types of floats have no Inf."""
    raw: Any = struct.pack("<4f", math.nan, 0, 0, 0)
    for name in ("int64", "bool", "float8_e4m3fn", ""):
        look = Look(lambda begin, end, step: raw[begin:end:step], name)
        look.at(0, 16)
        assert look.found == NOT_LOOKED


def model(bad: float | None = None, wide: int = 8) -> nn.Module:
    """With a buffer that is not finite, and is meant so."""
    torch.manual_seed(0)
    last = nn.Linear(wide, wide)
    made = nn.Sequential(nn.Linear(wide, wide), last)
    made.register_buffer("mask", torch.full((3, 3), -math.inf))
    made.register_buffer("unset", torch.full((3,), math.nan))
    if bad is not None:
        with torch.no_grad():
            last.weight[3, 2] = bad
    return made


def save(directory: Path, step: int, bad: float | None = None, **more: Any) -> Outcome:
    saver = Checkpointer(state={"model": model(bad)}, dir=directory, sync=True, **more)
    outcome = saver.save(step)
    assert outcome is not None
    assert outcome.ok, outcome
    return outcome


def names(directory: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in directory.glob("step-*"))


@pytest.mark.parametrize(("bad", "words"), [(math.nan, "NaN"), (-math.inf, "Inf")])
@pytest.mark.parametrize("wide", [8, 3000])
def test_a_checkpoint_that_is_not_finite_is_marked(
    tmp_path: Path, bad: float, words: str, wide: int
) -> None:
    """Whoever writes it; with the parameter, for whoever is told of it or looks at it later."""
    told: list[Outcome] = []
    saver = Checkpointer(state={"model": model(bad, wide)}, dir=tmp_path, sync=True)
    saver.on_outcome.append(told.append)
    outcome = saver.save(7)
    assert outcome is not None
    assert outcome.ok
    text = f"it holds {words}: model.1.weight"
    assert outcome.notfinite == text
    assert text in outcome.text
    assert of_outcome(outcome, 0.0)["notfinite"] == text
    found = checkpoints.verify(Path(outcome.path))
    assert (found.state, found.notfinite) == ("complete", text)
    assert checkpoints.find(tmp_path)[0][0].notfinite == text


def test_what_is_finite_is_not_marked(tmp_path: Path) -> None:
    """Whatever its buffers hold, and other things."""
    scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(  # its best is inf at first
        torch.optim.SGD(model().parameters())
    )
    state = {"model": model(), "scheduler": scheduler}
    outcome = Checkpointer(state=state, dir=tmp_path, sync=True).save(1)
    assert outcome is not None
    assert outcome.ok
    assert outcome.notfinite == ""
    assert checkpoints.read_manifest(Path(outcome.path)).notfinite == {}


def test_no_run_goes_on_by_itself_from_one_that_holds_nan(tmp_path: Path) -> None:
    """It says what it passed over; one that is named is taken, and said to be so."""
    save(tmp_path, 1)
    save(tmp_path, 2, math.inf)
    named = save(tmp_path, 3, math.nan).path
    saver = Checkpointer(state={"model": model()}, dir=tmp_path)
    resumed = saver.resume("auto")
    assert resumed is not None
    assert (resumed.step, resumed.notfinite) == (1, "")
    assert resumed.skipped == [
        "step-00000003: it holds NaN: model.1.weight",
        "step-00000002: it holds Inf: model.1.weight",
    ]
    again = saver.resume(named)
    assert again is not None
    assert (again.step, again.notfinite) == (3, "it holds NaN: model.1.weight")


def test_an_inf_that_all_have_is_meant(tmp_path: Path) -> None:
    """A parameter that shuts something out; the newest is gone on from, and none is taken away."""
    for step in (1, 2, 3):
        save(tmp_path, step, -math.inf, keep=2)
    assert names(tmp_path) == [2, 3]
    resumed = Checkpointer(state={"model": model()}, dir=tmp_path).resume("auto")
    assert resumed is not None
    assert (resumed.step, resumed.notfinite) == (3, "it holds Inf: model.1.weight")
    assert resumed.skipped == ["step-00000002: it holds Inf: model.1.weight"]


def test_where_all_hold_nan_there_is_none_to_go_on_from(tmp_path: Path) -> None:
    """As where all are damaged."""
    for step in (1, 2):
        save(tmp_path, step, math.nan)
    assert Checkpointer(state={"model": model()}, dir=tmp_path).resume("auto") is None


def test_those_that_hold_nan_take_no_good_ones_place(tmp_path: Path) -> None:
    """Nor do they grow in number."""
    for step in (1, 2, 3):
        save(tmp_path, step, keep=2)
    for step in (4, 5, 6):
        save(tmp_path, step, math.nan, keep=2)
    assert names(tmp_path) == [2, 3, 5, 6]
    save(tmp_path, 7, keep=2)
    assert names(tmp_path) == [3, 5, 6, 7]


def test_those_that_hold_inf_do_not_take_the_last_finite_ones_away(tmp_path: Path) -> None:
    """A run goes on from these by itself as long as there are any: they must still be there."""
    for step in (1, 2, 3):
        save(tmp_path, step, keep=2)
    for step in (4, 5, 6):
        save(tmp_path, step, math.inf, keep=2)
    assert names(tmp_path) == [2, 3, 5, 6]
    save(tmp_path, 7, math.nan, keep=2)
    resumed = Checkpointer(state={"model": model()}, dir=tmp_path).resume("auto")
    assert resumed is not None
    assert (resumed.step, resumed.notfinite) == (3, "")


def test_a_checkpoint_of_before_says_nothing_of_it(tmp_path: Path) -> None:
    """It is gone on from, as ever."""
    path = Path(save(tmp_path, 1, math.nan).path)
    manifest = checkpoints.read_manifest(path)
    receipt = decode_receipt((path / receipt_name(0)).read_bytes())
    manifest.notfinite = receipt.notfinite = None
    (path / MANIFEST).write_bytes(encode(manifest))
    (path / receipt_name(0)).write_bytes(encode(receipt))
    assert checkpoints.verify(path).problems == []
    resumed = Checkpointer(state={"model": model()}, dir=tmp_path).resume("auto")
    assert resumed is not None
    assert resumed.step == 1


def test_a_look_that_fails_fails_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then."""
    monkeypatch.setattr(Look, "_block", lambda *given: 1 / 0)
    outcome = save(tmp_path, 1, math.nan)
    assert outcome.notfinite == ""


def test_ranks_find_together_what_each_has_written() -> None:
    """A tensor that lies in parts on several: one NaN in any part is enough."""

    def receipt(rank: int, found: dict[str, str] | None) -> Receipt:
        return Receipt(1, 0, 1, rank, 2, 0, {}, FileEntry("f", 0, rank), {}, {}, {}, found)

    one, other = receipt(0, {"b": "inf", "a": "nan"}), receipt(1, {"b": "nan"})
    assert coverage.notfinite([one, other]) == {"a": "nan", "b": "nan"}
    assert coverage.notfinite([receipt(0, None), receipt(1, {})]) == {}
    assert coverage.notfinite([receipt(0, None)]) is None
    assert coverage.notfinite_text({"b": "nan", "a": "inf"}) == "it holds NaN: b and 1 more"
    assert coverage.notfinite_text({}) == coverage.notfinite_text(None) == ""
