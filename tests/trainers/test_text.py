"""Finding text, and telling it from what is none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol.exits import UserError
from rankscope.trainers.text import is_text, read_text


def test_the_standard_library_is_there_without_being_asked_for() -> None:
    """Without a path there is text on every machine, the same at every reading."""
    text = read_text(None, 300_000)
    assert 200_000 < len(text) <= 300_001
    assert text == read_text(None, 300_000)
    assert b"import " in text


def test_a_file_is_read_whole_and_ends_with_a_separator(tmp_path: Path) -> None:
    """The separator is the byte that no text holds."""
    file = tmp_path / "a.txt"
    file.write_text("hello")
    assert read_text(file, 100) == b"hello\0"


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    """Starting takes no longer for having a large file."""
    file = tmp_path / "a.txt"
    file.write_text("x" * 1000)
    assert len(read_text(file, 10)) == 11


def test_a_folder_is_read_in_one_order_without_binary_hidden_and_empty_files(
    tmp_path: Path,
) -> None:
    """Files by name, then folders by name; only text counts."""
    (tmp_path / "b.txt").write_text("B")
    (tmp_path / "a.txt").write_text("A")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.txt").write_text("C")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / ".hidden").write_text("H")
    (tmp_path / "empty.txt").write_text("")
    assert read_text(tmp_path, 100) == b"A\0B\0C\0"


def test_a_folder_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """What is read of many files is bounded as well."""
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("y" * 100)
    assert len(read_text(tmp_path, 250)) <= 253


def test_test_data_and_installed_packages_are_left_out(tmp_path: Path) -> None:
    """Folders that hold test data or other people's packages are no sources of this tree."""
    for name in ("site-packages", "test", "__pycache__", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(name)
    assert read_text(tmp_path, 100) == b"kept\0"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_text(""), "empty"),
        (lambda path: path.write_text(" \n\n"), "empty"),
        (lambda path: path.write_bytes(b"text\0text"), "binary"),
        (lambda path: path.write_bytes(bytes(range(1, 256)) * 8), "binary"),
        (lambda path: path.write_text("wide", encoding="utf-16"), "binary"),
        (lambda path: path.mkdir(), "no text files"),
        (lambda path: (path.mkdir(), (path / "b").write_bytes(b"\0")), "no text files"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line_with_its_name(
    tmp_path: Path, make: "object", says: str
) -> None:
    """Missing, empty, binary: each says what is wrong with what."""
    path = tmp_path / "given"
    assert callable(make)
    make(path)
    with pytest.raises(UserError, match=says) as refused:
        read_text(path, 100_000)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_device_is_refused() -> None:
    """An endless file would be read for ever, or as nothing."""
    with pytest.raises(UserError, match="neither a file nor a folder"):
        read_text(Path("/dev/zero"), 100)


def test_text_in_an_old_encoding_is_text() -> None:
    """Prose in Latin-1 is not UTF-8, and still worth training on."""
    assert is_text("Ein schöner Tag für große Übungen.".encode("latin-1"))


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"])), st.integers(0, 3))
def test_utf8_is_text_wherever_it_is_cut(words: str, cut: int) -> None:
    """Reading a bounded amount may end within a character."""
    encoded = words.encode()
    assert is_text(encoded[: max(len(encoded) - cut, 0)])
