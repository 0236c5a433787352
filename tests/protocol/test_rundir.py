"""Run directories: private, found by the rules, and told in words when they are not usable."""

import dataclasses
import errno
import os
import socket
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import env, keys, rundir
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.procs import start_time_s
from rankscope.protocol.version import MAJOR


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "runs"


def make(home: Path, run: str, now_s: float = 1000.0, live: bool = False) -> rundir.RunDirectory:
    directory = rundir.create(home, run, command=["train"], name="t", now_s=now_s)
    if live:
        mine = start_time_s(os.getpid())
        assert mine is not None
        info = directory.read_info()
        directory.write_info(
            msgspec.structs.replace(info, hub=rundir.HubProcess(os.getpid(), mine))
        )
    return directory


def test_all_of_it_is_closed_to_others(home: Path) -> None:
    """0700 for directories, 0600 for files, whatever the umask."""
    old = os.umask(0)
    try:
        directory = make(home, "a")
    finally:
        os.umask(old)
    for path in directory.path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_a_run_knows_its_machine(home: Path) -> None:
    """Also one whose file was written by a version that did not note it: it is taken for ours."""
    directory = make(home, "a")
    info = directory.read_info()
    assert (info.host, rundir.elsewhere(info)) == (socket.gethostname(), "")
    assert rundir.elsewhere(msgspec.structs.replace(info, host="node-77")) == "node-77"
    older = msgspec.json.decode(directory.info_path.read_bytes())
    del older["host"]
    directory.info_path.write_bytes(msgspec.json.encode(older))
    assert rundir.elsewhere(directory.read_info()) == ""


def test_each_role_has_a_key_of_its_own_that_the_hub_knows(home: Path) -> None:
    """run.json lists the public keys; key files hold the pairs and the hub's public key."""
    directory = make(home, "a")
    info = directory.read_info()
    hub = directory.read_hub_key()
    assert info.public_keys["hub"] == hub.public
    publics = set()
    for role in keys.ROLES:
        key = directory.read_key(role)
        assert (key.role, key.run, key.hub_public) == (role, "a", hub.public)
        assert info.public_keys[role] == key.public
        publics.add(key.public)
    assert len(publics | {hub.public}) == 4


def test_secrets_are_not_in_what_tracebacks_print(home: Path) -> None:
    """repr shows public halves only."""
    directory = make(home, "a")
    for key in (directory.read_hub_key(), directory.read_key("operator")):
        assert key.secret not in repr(key)
        assert key.public in repr(key)


def test_latest_points_to_the_newest(home: Path) -> None:
    """It is replaced, not followed."""
    make(home, "a")
    make(home, "b")
    assert (home / "latest").readlink() == Path("b")


def test_no_argument_means_the_only_live_run_else_the_newest_ended_one(home: Path) -> None:
    """The rule commands share."""
    make(home, "old", now_s=1)
    make(home, "new", now_s=2)
    assert rundir.find_run(home, None).run == "new"
    make(home, "alive", now_s=0, live=True)
    assert rundir.find_run(home, None).run == "alive"


def test_several_live_runs_are_listed_not_guessed(home: Path) -> None:
    """The error names them."""
    make(home, "a", live=True)
    make(home, "b", live=True)
    with pytest.raises(UserError, match=r"a.*|b.*") as caught:
        rundir.find_run(home, None)
    assert caught.value.exit_code == Exit.USAGE
    assert "a" in str(caught.value)
    assert "b" in str(caught.value)


def test_a_run_is_found_by_id_and_by_path(home: Path) -> None:
    """Both forms, and latest."""
    directory = make(home, "a")
    assert rundir.find_run(home, "a").path == directory.path
    assert rundir.find_run(home, str(directory.path)).path == directory.path
    assert rundir.find_run(home, "latest").path == directory.path


def test_no_run_at_all_is_unreachable(home: Path) -> None:
    """Exit code 3 and what to do."""
    with pytest.raises(UserError, match="start one with") as caught:
        rundir.find_run(home, None)
    assert caught.value.exit_code == Exit.UNREACHABLE


@pytest.mark.parametrize("wanted", ["nope", "../nope", "/does/not/exist"])
def test_a_run_that_is_not_there_is_said_so(home: Path, wanted: str) -> None:
    """One line, exit code 2."""
    make(home, "a")
    with pytest.raises(UserError, match="no run"):
        rundir.find_run(home, wanted)


def test_a_stale_directory_is_not_live(home: Path) -> None:
    """The pid is in use, by a process that started at another time."""
    directory = make(home, "a", live=True)
    info = directory.read_info()
    assert rundir.hub_is_alive(info)
    assert info.hub is not None
    reused = msgspec.structs.replace(info.hub, start_time_s=info.hub.start_time_s - 100)
    assert not rundir.hub_is_alive(msgspec.structs.replace(info, hub=reused))
    gone = msgspec.structs.replace(info.hub, pid=2**22 + 1)
    assert not rundir.hub_is_alive(msgspec.structs.replace(info, hub=gone))


@pytest.mark.parametrize("what", ["directory", "run.json", "key"])
def test_what_others_can_read_is_refused_with_the_command_that_mends_it(
    home: Path, what: str
) -> None:
    """Permissions are named with the chmod to run."""
    directory = make(home, "a")
    if what == "directory":
        directory.path.chmod(0o755)
        with pytest.raises(UserError, match="chmod go-rwx"):
            rundir.find_run(home, "a")
    elif what == "run.json":
        directory.info_path.chmod(0o644)
        with pytest.raises(UserError, match="chmod go-rwx"):
            directory.read_info()
    else:
        directory.key_path("viewer").chmod(0o640)
        with pytest.raises(UserError, match="chmod go-rwx"):
            directory.read_key("viewer")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"role":"king"}', b"x" * 10_000]
)
def test_a_damaged_key_file_is_a_user_error(home: Path, content: bytes) -> None:
    """Whatever is in it."""
    directory = make(home, "a")
    directory.key_path("viewer").write_bytes(content)
    with pytest.raises(UserError):
        directory.read_key("viewer")


@pytest.mark.parametrize("content", [b"", b"{", b'{"run": 3}', b"\xff"])
def test_a_damaged_run_file_is_a_user_error(home: Path, content: bytes) -> None:
    """And the listing still works."""
    directory = make(home, "a")
    directory.info_path.write_bytes(content)
    with pytest.raises(UserError, match="damaged") as refused:
        directory.read_info()
    assert "remove" not in str(refused.value)  # its run may be alive
    assert [found.run for found in rundir.list_runs(home)] == ["a"]


def test_a_run_of_another_major_is_refused_in_words(home: Path) -> None:
    """It says which version made it."""
    directory = make(home, "a")
    directory.write_info(msgspec.structs.replace(directory.read_info(), protocol_major=MAJOR + 1))
    with pytest.raises(UserError, match=f"protocol {MAJOR + 1}"):
        directory.read_info()


@pytest.mark.parametrize("run", ["", ".", "..", "a/b", "-x", "x" * 65, "a b", "é"])
def test_an_id_that_is_no_file_name_is_refused(home: Path, run: str) -> None:
    """Before anything is made."""
    with pytest.raises(UserError, match="run id"):
        rundir.create(home, run, command=[], name="", now_s=0.0)
    assert not home.exists()


def test_an_id_twice_is_refused(home: Path) -> None:
    """Nothing of the first is touched."""
    first = make(home, "a").read_info()
    with pytest.raises(UserError, match="exists"):
        make(home, "a")
    assert rundir.RunDirectory(home / "a").read_info() == first


def test_a_home_that_cannot_be_written_says_what_to_set(tmp_path: Path) -> None:
    """A file in the way of the directory."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="RANKSCOPE_HOME"):
        rundir.create(tmp_path / "file", "a", command=[], name="", now_s=0.0)


def names(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()}


@pytest.mark.parametrize("run", ["latest", "Latest"])
def test_the_name_of_the_link_is_no_id(home: Path, run: str) -> None:
    """A folder in the link's place would be taken for the newest run ever after."""
    for before in ("none", "a"):
        with pytest.raises(UserError, match=r"no run id.*choose another") as caught:
            make(home, run)
        assert caught.value.exit_code == Exit.USAGE
        if before == "none":
            assert not home.exists()
            make(home, "a")
    assert names(home) == {"a", "latest"}
    assert (home / "latest").readlink() == Path("a")


@pytest.mark.parametrize("beside", ["a folder", "a link in the making"])
def test_a_link_that_cannot_be_moved_costs_no_run(
    home: Path, caplog: pytest.LogCaptureFixture, beside: str
) -> None:
    """The run is there, nothing half made is left, and one line says what is in the way."""
    if beside == "a folder":
        (home / "latest").mkdir(parents=True)
    else:
        (home / ".latest.a").mkdir(parents=True)
    before = names(home)
    assert make(home, "a").read_info().run == "a"
    assert names(home) == {"a", *before}
    (said,) = caplog.messages
    assert "latest" in said
    assert "\n" not in said
    assert rundir.find_run(home, None).run == "a"


def test_a_run_that_cannot_be_made_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither keys nor a folder that the next try would find taken."""
    make(home, "a")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(rundir, "write_private", full)
        with pytest.raises(UserError, match="No space left"):
            make(home, "b")
    assert names(home) == {"a", "latest"}
    assert make(home, "b").read_info().run == "b"


NOWHERE = ["~no-such-user/x", "~no-such-user"]


@pytest.mark.parametrize("place", NOWHERE)
def test_the_home_of_nobody_is_said_so(place: str) -> None:
    """One line, exit code 2."""
    with pytest.raises(UserError, match=f"{env.HOME}.*{place}") as caught:
        rundir.runs_home({env.HOME: place})
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("wanted", [*NOWHERE, "x" * 300, f"/{'x' * 300}/y", "loop", "./loop/x"])
def test_a_run_that_no_path_leads_to_is_said_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """Unknown users, names that are too long, links that go round in a circle."""
    make(home, "a")
    (home / "loop").symlink_to("loop")
    monkeypatch.chdir(home)
    with pytest.raises(UserError) as caught:
        rundir.find_run(home, wanted)
    assert caught.value.exit_code == Exit.USAGE
    assert "\n" not in str(caught.value)


def test_ids_differ_and_sort_by_time() -> None:
    """Two runs in one second do not collide."""
    assert rundir.new_run_id(0.0) != rundir.new_run_id(0.0)
    assert rundir.new_run_id(0.0)[:15] < rundir.new_run_id(90_000.0)[:15]


def test_a_run_directory_is_a_value() -> None:
    """Paths only; nothing is read until asked."""
    assert dataclasses.is_dataclass(rundir.RunDirectory)
