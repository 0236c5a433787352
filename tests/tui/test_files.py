"""Files of the same name are told apart, and no more of a path is shown than that takes."""

import pytest

from rankscope.protocol.shapes import FrameRow, StackGroup, StacksView
from rankscope.tui.text.stacks import stacks_text
from rankscope.tui.words.files import told_apart


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["/home/ada/gpt/train.py"], ["train.py"]),
        (["/home/ada/gpt/train.py", "/home/ada/gpt/model.py"], ["train.py", "model.py"]),
        (["/gpt/src/model.py", "/gpt/lib/model.py"], ["src/model.py", "lib/model.py"]),
        (["/a/x/model.py", "/b/x/model.py", "/b/y.py"], ["a/x/model.py", "b/x/model.py", "y.py"]),
        (["model.py", "/gpt/model.py"], ["model.py", "gpt/model.py"]),
        (["/gpt/model.py", "gpt/model.py"], ["/gpt/model.py", "gpt/model.py"]),
        (["C:\\gpt\\a\\m.py", "C:\\gpt\\b\\m.py"], ["a/m.py", "b/m.py"]),
        (["<string>", "<string>"], ["<string>", "<string>"]),
        ([], []),
    ],
)
def test_a_name_is_the_shortest_end_of_its_path_that_is_its_own(
    files: list[str], names: list[str]
) -> None:
    """In any order of the files."""
    for order in (files, files[::-1]):
        found = told_apart(order)
        assert [found[file] for file in files] == names


def test_stacks_of_two_files_of_one_name_say_which_is_meant() -> None:
    """The line of one's own code, too, which comes with its file's name alone."""

    def group(rank: int, folder: str) -> StackGroup:
        rows = [
            FrameRow(file=f"/home/ada/gpt/{folder}/model.py", line=41, function="forward"),
            FrameRow(file="/home/ada/gpt/train.py", line=8, function="main"),
        ]
        return StackGroup([rank], rows, False, "model.py:41 in forward", 0.1)

    view = StacksView("run-1", [group(0, "src"), group(1, "lib")], [], [], {})
    text = "\n".join(stacks_text(view, 80))
    assert "rank 0: src/model.py:41 in forward" in text
    assert "rank 1: lib/model.py:41 in forward" in text
    assert text.count("  src/model.py:41 in forward") == 1
    assert text.count("  train.py:8 in main") == 2
