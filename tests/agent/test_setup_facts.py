"""What a rank tells of its set-up: enough to tell it from others, and no secrets."""

from pathlib import Path

import pytest
import torch

from rankscope.agent.observer import Observer
from rankscope.agent.probes import environment, setup
from rankscope.protocol import limits


def test_variables_that_change_training_are_told() -> None:
    """In order of names, values cut in one line."""
    environ = {
        "NCCL_PROTO": "Simple",
        "HOME": "/home/ada",
        "OMP_NUM_THREADS": "1",
        "LD_PRELOAD": "a\nb",
        "PATH": "/bin",
        "NCCL_DEBUG": "x" * 100,
    }
    lines = environment.environment_text(environ).splitlines()
    assert lines[0] == "LD_PRELOAD=a?b"
    assert lines[1].startswith("NCCL_DEBUG=" + "x" * environment.MAX_VALUE_CHARS + "… ")
    assert lines[2:] == ["NCCL_PROTO=Simple", "OMP_NUM_THREADS=1"]


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_AUTH_TOKEN", "TORCH_SECRET", "CUDA_API_KEY", "FI_PASSWORD", "MKL_CREDENTIALS"),
        *("RANK", "LOCAL_RANK", "TORCHELASTIC_ERROR_FILE", "CUDA_VISIBLE_DEVICES", "AWS_TOKEN"),
    ],
)
def test_secrets_and_what_differs_by_design_are_not(name: str) -> None:
    """Neither the value nor the name."""
    assert environment.environment_text({name: "v"}) == ""


def test_long_values_differ_by_their_hash() -> None:
    """Two paths with one beginning are two values."""
    one, other = (environment.shortened("/opt/" + "x" * 60 + end) for end in "ab")
    assert one != other
    assert len(one) < 70


def test_too_many_variables_still_fit_and_still_differ() -> None:
    """What does not fit is told by its number and hash."""
    many = {f"NCCL_{number:04}": "v" * 40 for number in range(300)}
    text = environment.environment_text(many)
    assert len(text) <= limits.MAX_TEXT_CHARS
    assert text.splitlines()[-1].startswith("…=")
    assert environment.environment_text(many | {"NCCL_0299": "w"}) != text


def test_what_a_process_has_of_its_own_is_known_by_its_parent() -> None:
    """Set, changed and taken away; not what nobody is compared by."""
    parent = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "HOME": "/a"}
    mine = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple", "HOME": "/b"}
    assert environment.changed_here(mine, parent) == ["NCCL_ALGO", "NCCL_DEBUG", "NCCL_PROTO"]
    assert environment.changed_here(mine, None) == []


def test_the_parents_environment_is_read_or_not_known(tmp_path: Path) -> None:
    """Where /proc shows none, nobody is said to have changed anything."""
    assert environment.parent_environment() is not None
    assert environment.parent_environment(tmp_path) is None


def test_the_facts_fit_a_message() -> None:
    """Their number, their names, their values; all are text."""
    facts = setup.setup_facts({"NCCL_DEBUG": "WARN"})
    assert facts["environment"] == "NCCL_DEBUG=WARN"
    assert facts["torch_installed"] == torch.__version__
    assert facts["default_dtype"] == "float32"
    assert len(facts) < limits.MAX_FACTS / 2
    assert all(len(value) <= limits.MAX_TEXT_CHARS for value in facts.values())


def test_the_seed_and_the_generators_place_are_told() -> None:
    """Equal for equal draws, and another one after a draw."""
    torch.manual_seed(7)
    first = setup.random_facts()
    torch.manual_seed(7)
    assert setup.random_facts() == first
    assert first["seed"] == "7"
    torch.rand(1)
    drawn = setup.random_facts()
    assert (drawn["seed"], drawn["rng"] != first["rng"]) == ("7", True)


def test_the_main_scripts_text_is_hashed(tmp_path: Path) -> None:
    """Equal for equal text; none for what is not there or too large."""
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("a = 1\n")
    other.write_text("a = 1\n")
    assert setup.code_hash(one) == setup.code_hash(other) != ""
    other.write_text("a = 2\n")
    assert setup.code_hash(one) != setup.code_hash(other)
    assert setup.code_hash(None) == ""


@pytest.mark.parametrize("how", ["loose", "packed", "detached", "worktree"])
def test_the_commit_is_read_from_the_repositorys_files(tmp_path: Path, how: str) -> None:
    """However the repository keeps it, and without starting git."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    folder = tmp_path / "src"
    folder.mkdir()
    if how == "packed":
        (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    else:
        (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    if how == "detached":
        (git / "HEAD").write_text(f"{commit}\n")
    if how == "worktree":
        own = git / "worktrees" / "w"
        own.mkdir(parents=True)
        (own / "HEAD").write_text("ref: refs/heads/main\n")
        (own / "commondir").write_text("../..\n")
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        (folder / ".git").write_text(f"gitdir: {own}\n")
    assert setup.git_commit(folder) == commit[: setup.HASH_CHARS]


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path) -> None:
    """Nothing is claimed of it."""
    assert setup.git_commit(tmp_path) in ("", setup.git_commit(tmp_path.parent))


def test_the_code_is_that_with_which_the_rank_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed or edited while it runs is run by nobody."""
    told = {"git": "before", "code": "1", "machine": "x"}
    monkeypatch.setattr(setup, "setup_facts", lambda: dict(told))
    probe = setup.Setup(Observer())
    assert probe.read() == told
    told |= {"git": "after", "code": "2", "machine": "y"}
    assert probe.read() == {"git": "before", "code": "1", "machine": "y"}
