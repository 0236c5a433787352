"""What a checkpoint on disk can suffer, and what is then said of it."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from rankscope.agent.checkpoint import Checkpointer
from rankscope.agent.checkpoint.envelope import aligned, envelope
from rankscope.protocol import checkpoints
from rankscope.protocol.exits import UserError

DTYPES = [
    *(torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.int64),
    *(torch.float8_e4m3fn, torch.uint16, torch.complex64),
]


def model(width: int = 5) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of one process."""
    saver = Checkpointer(state={"model": model()}, dir=tmp_path, sync=True)
    outcome = saver.save(7)
    assert outcome is not None
    assert outcome.ok, outcome
    return Path(outcome.path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_an_entry_is_what_torch_load_reads(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """And any program that reads zip files."""
    tensor = torch.randint(0, 2, shape).to(dtype)
    raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    before, after = envelope(dtype, shape, len(raw))
    entry = io.BytesIO(before + raw + after)
    loaded = torch.load(entry, weights_only=True)
    assert (loaded.dtype, loaded.shape) == (dtype, tensor.shape)
    again = loaded.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    assert again == raw
    assert "archive/data/0" in zipfile.ZipFile(entry).namelist()


@pytest.mark.parametrize("at", [0, 1, 3700, 4095, 4096, 12345])
def test_data_that_begin_at_a_page_of_the_file_are_what_torch_load_reads(at: int) -> None:
    """Wherever the entry begins; what fills the room before them belongs to the entry."""
    for rows in range(1, 40):  # the room is of every size, those that are too small for it, too
        tensor = torch.arange(rows, dtype=torch.int16)
        raw = tensor.numpy().tobytes()
        before, after = aligned(torch.int16, (rows,), len(raw), at, 64)
        assert (at + len(before)) % 64 == 0
        entry = io.BytesIO(before + raw + after)
        assert torch.equal(torch.load(entry, weights_only=True), tensor)
        assert zipfile.ZipFile(entry).testzip() == "archive/data/0"  # has no checksum of its own
        at += 1


def test_dcp_itself_reads_a_checkpoint(saved: Path) -> None:
    """With nothing of rankscope."""
    other = model()
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    state = {"model": get_model_state_dict(other)}
    with pytest.warns(UserWarning, match="in a single process"):
        dcp.load(state, checkpoint_id=saved, no_dist=True)  # type: ignore[attr-defined]
    expected = get_model_state_dict(model())
    for name, value in state["model"].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected[name])), name


def test_a_whole_checkpoint_is_complete(saved: Path) -> None:
    """What does not belong to it is named, and does no harm."""
    assert checkpoints.verify(saved).state == "complete"
    (saved / "notes.txt").write_text("mine")
    found = checkpoints.verify(saved)
    assert (found.state, found.step, found.problems) == ("complete", 7, [])
    assert found.notes == ["notes.txt is not part of it"]


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"x")])
def test_what_only_torch_needs_is_told_when_it_is_not_as_it_was(
    saved: Path, harm: Callable[[Path], None]
) -> None:
    """The checkpoint is whole all the same, and is gone on from."""
    harm(saved / checkpoints.METADATA)
    found = checkpoints.verify(saved)
    assert found.state == "complete"
    assert found.notes[0].startswith(".metadata is ")
    assert found.notes[0].endswith("torch's own dcp.load cannot")
    assert Checkpointer(state={"model": model()}, dir=saved.parent).resume("auto") is not None


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


@pytest.mark.parametrize(
    ("name", "harm", "state", "words"),
    [
        ("__0_0.distcp", Path.unlink, "incomplete", "__0_0.distcp (rank 0) is missing"),
        ("__0_0.distcp", truncate, "incomplete", "bytes"),
        ("__0_0.distcp", lengthen, "corrupt", "1 too many"),
        ("receipt-00000.json", Path.unlink, "incomplete", "there is no receipt-00000.json"),
        ("receipt-00000.json", truncate, "corrupt", "its checksum does not fit"),
        ("manifest.json", Path.unlink, "incomplete", "there is no manifest.json"),
        ("manifest.json", truncate, "corrupt", "its checksum does not fit"),
    ],
)
def test_a_file_that_is_not_as_it_was_is_named(
    saved: Path, name: str, harm: Callable[[Path], None], state: str, words: str
) -> None:
    """Missing or short is incomplete; changed is corrupt; and it is not loaded."""
    harm(saved / name)
    found = checkpoints.verify(saved)
    assert found.state == state
    assert words in found.problems[0]
    saver = Checkpointer(state={"model": model()}, dir=saved.parent)
    assert saver.resume("auto") is None
    with pytest.raises(UserError):
        saver.resume(saved)


def test_no_bit_of_it_can_flip_unseen(saved: Path) -> None:
    """Wherever in the data file: tensors, what is around them, objects."""
    path = saved / "__0_0.distcp"
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        found = checkpoints.verify(saved)
        assert found.state == "corrupt", at
        assert "its checksum does not fit" in found.problems[0]
    path.write_bytes(whole)
    assert checkpoints.verify(saved).state == "complete"


def test_a_later_format_is_refused_in_words(saved: Path) -> None:
    """Also when everything else could be read."""
    path = saved / "manifest.json"
    body = path.read_bytes()[len(b'{"crc32": "00000000",') :]
    body = body.replace(b'"format":1,', b'"format":2,', 1)
    path.write_bytes(b'{"crc32": "%08x",' % zlib.crc32(body) + body)
    assert json.loads(path.read_bytes())["format"] == 2
    found = checkpoints.verify(saved)
    assert "it is of format 2, this version reads up to 1" in found.problems[0]


def test_leftovers_of_every_kind_are_passed_over(saved: Path) -> None:
    """Backups, half directories, files, temporary ones: named, and left where they are."""
    folder = saved.parent
    (folder / "step-00000009").mkdir()
    (folder / "step-100.backup").mkdir()
    (folder / "step-00000011").write_text("a file")
    (folder / f"{checkpoints.TEMPORARY}step-00000012-ab").mkdir()
    saver = Checkpointer(state={"model": model()}, dir=folder)
    resumed = saver.resume("auto")
    assert resumed is not None
    assert resumed.step == 7
    assert sorted(resumed.skipped) == [
        ".saving-step-00000012-ab: not a checkpoint's name",
        "step-00000009: there is no manifest.json",
        "step-00000011: not a checkpoint's name",
        "step-100.backup: not a checkpoint's name",
    ]
    outcome = saver.save(9)
    assert outcome is None
    outcome = saver.wait()
    assert outcome is not None
    assert outcome.ok
    assert Path(outcome.path).name == "step-00000009.1"
    assert len(list(folder.iterdir())) == 7  # and latest


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"model": model(6)}, "model.0.bias is [5] there and [6] here"),
        ({"model": model().double()}, "is float32 there and float64 here"),
        ({"model": nn.Sequential(nn.Linear(4, 5))}, "is in the checkpoint and not here"),
        ({"net": model()}, "there is nothing of net in the checkpoint"),
        (
            {"model": model(), "other": model()},
            "there is nothing of other in the checkpoint",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    saved: Path, other: dict[str, Any], words: str
) -> None:
    """Saying what differs, before anything is changed."""
    before = [p.clone() for thing in other.values() for p in thing.parameters()]
    with pytest.raises(UserError, match="cannot load") as caught:
        Checkpointer(state=other, dir=saved.parent).resume(saved)
    assert words in str(caught.value)
    after = [p for thing in other.values() for p in thing.parameters()]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
