"""GPU readings: a working device, one that reports little, a sick one, and none."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.agent.sentinel import gpuwatch, nvml
from rankscope.agent.sentinel.gpuwatch import Answer, GpuWatch
from rankscope.protocol.messages import GpuSample
from support import nvml_standin
from support.noderouter import NodeRouter
from support.nvml_standin import H100
from support.sentinels import Launcher, make_node_dir, sentinel
from support.wire import wait_until


class Scene:
    """What the stand-in shall do, written where it reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def play(self, *gpus: dict[str, Any], init: str = "ok") -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"init": init, "gpus": list(gpus)}))
        fresh.replace(self.path)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(tmp_path / "scene.json")
    monkeypatch.setenv("NVML_STANDIN", str(scene.path))
    return scene


def read_all() -> list[GpuSample]:
    devices = nvml.open_devices(nvml_standin)
    return [nvml.read(nvml_standin, device) for device in devices]


def test_a_working_gpu_gives_every_reading(scene: Scene) -> None:
    """Units are those of the message, reasons are names, NVLink errors are summed."""
    scene.play(H100)
    assert read_all() == [
        GpuSample(
            index=0,
            name="NVIDIA H100 80GB HBM3",
            utilisation_percent=97.0,
            memory_used_bytes=41_200_000_000,
            memory_total_bytes=85_520_809_984,
            temperature_c=64.0,
            power_w=612.5,
            sm_clock_mhz=1980.0,
            throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"),
            ecc_uncorrected=0,
            nvlink_errors=6,
        )
    ]


READINGS = {
    "utilisation": "utilisation_percent",
    "memory": "memory_used_bytes",
    "temperature": "temperature_c",
    "power": "power_w",
    "clock": "sm_clock_mhz",
    "ecc": "ecc_uncorrected",
    "nvlink": "nvlink_errors",
}


@pytest.mark.parametrize("missing", READINGS)
@pytest.mark.parametrize("error", ["unsupported", "unknown", "no_function"])
def test_one_missing_reading_takes_no_other_with_it(scene: Scene, missing: str, error: str) -> None:
    """What a device does not report is None, everything else is there."""
    scene.play({**H100, missing: error})
    (gpu,) = read_all()
    for name, field in READINGS.items():
        assert (getattr(gpu, field) is None) == (name == missing)


def test_a_device_that_reports_nothing_is_still_listed(scene: Scene) -> None:
    """Only the index is certain."""
    scene.play({})
    assert read_all() == [
        GpuSample(0, "unknown GPU", None, None, None, None, None, None, (), None, None)
    ]


def test_links_that_count_only_some_errors_are_summed_over_those(scene: Scene) -> None:
    """None stands only where no kind of NVLink error is counted."""
    scene.play({**H100, "nvlink": [None, 4, None, 1]}, {**H100, "nvlink": [None] * 4})
    assert [gpu.nvlink_errors for gpu in read_all()] == [5, None]


def test_an_older_driver_is_asked_for_throttle_reasons_by_their_older_name(scene: Scene) -> None:
    """The newer call does not exist there."""
    scene.play({**H100, "event_reasons": "no_function", "throttle_reasons": 0x1 | 0x80})
    assert read_all()[0].throttle_reasons == ("hw_power_brake_slowdown",)


def test_an_odd_value_is_no_reading(scene: Scene) -> None:
    """A binding that returns what it should not costs that one reading."""
    scene.play({**H100, "temperature": "warm"})
    (gpu,) = read_all()
    assert gpu.temperature_c is None
    assert gpu.power_w == 612.5


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ("no_driver", "none: no NVIDIA driver on this machine"),
        ("no_permission", "none: this user may not talk to the NVIDIA driver"),
        ("mismatch", "none: the NVIDIA library and kernel module differ in version"),
        ("unknown", "none: NVML says 'Unknown Error'"),
    ],
)
def test_why_there_are_no_gpus_is_said_in_words(scene: Scene, init: str, says: str) -> None:
    """Each way in which NVML does not start has its sentence."""
    scene.play(H100, init=init)
    with pytest.raises(nvml.NoGpus, match="^" + says.replace("(", r"\(")):
        nvml.open_devices(nvml_standin)


def test_a_driver_without_a_device_is_said_in_words(scene: Scene) -> None:
    """A driver is loaded and finds nothing."""
    scene.play()
    with pytest.raises(nvml.NoGpus, match="shows no GPU"):
        nvml.open_devices(nvml_standin)


def test_a_lost_gpu_is_named(scene: Scene) -> None:
    """Its readings are None, the others go on, and the note says which one to look at."""
    lost = dict.fromkeys(H100, "lost") | {"name": "NVIDIA H100 80GB HBM3"}
    scene.play(H100, lost, {**H100, "memory": "reset"})
    devices = nvml.open_devices(nvml_standin)
    gpus = [nvml.read(nvml_standin, device) for device in devices]
    assert gpus[0].power_w == 612.5
    assert gpus[1].power_w is None
    assert nvml.lost_note(nvml_standin, devices) == (
        "GPU 1 is lost: it fell off the bus, reboot the node; "
        "GPU 2 needs a reset: nvidia-smi -r -i 2"
    )


def test_readings_that_are_too_old_are_not_shown() -> None:
    """A silent NVML is said to be silent, in steps that seldom change."""
    gpu = GpuSample(0, "x", 1.0, None, None, None, None, None, (), None, None)
    answer = Answer(100.0, (gpu,), "")
    assert gpuwatch.present(answer, 104.9) == ((gpu,), "")
    notes = [gpuwatch.present(answer, 100.0 + s) for s in (5.0, 9.9, 10.0, 39.0, 40.0)]
    assert [gpus for gpus, _ in notes] == [()] * 5
    seconds = [note.split(" for ")[1].split(" s")[0] for _, note in notes]
    assert seconds == ["5", "5", "10", "20", "40"]
    none = Answer(100.0, (), "none: no NVIDIA driver on this machine", final=True)
    assert gpuwatch.present(none, 1e6) == ((), "none: no NVIDIA driver on this machine")


def test_a_hanging_driver_holds_up_nobody_and_its_return_is_noticed(scene: Scene) -> None:
    """While a call hangs, asking returns at once; once it answers, readings are back."""
    scene.play(H100)
    watch = GpuWatch(lambda: nvml_standin)
    watch.start()
    wait_until(lambda: watch.now(time.monotonic())[0])
    scene.play({**H100, "power": "hang"})
    later_s = gpuwatch.PATIENCE_S + 1
    wait_until(lambda: watch.now(time.monotonic() + later_s)[1].startswith("NVML has not answered"))
    scene.play({**H100, "power": 100_000})
    wait_until(lambda: [g.power_w for g in watch.now(time.monotonic())[0]] == [100.0])
    watch.stop()
    wait_until(lambda: all(thread.name != "nvml" for thread in threading.enumerate()))


def test_without_the_module_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base installs no GPU library."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(nvml.NoGpus, match=r"pip install 'rankscope\[gpu\]'"):
        nvml.load()


def test_the_real_module_has_every_name_that_is_used() -> None:
    """The stand-in is no proof of that: the installed binding is asked."""
    real = nvml.load()
    names = [name for name in vars(nvml_standin) if name.lower().startswith("nvml")]
    assert len(names) > 20
    assert [name for name in names if not hasattr(real, name)] == []
    for bit, name in nvml.THROTTLE_REASONS.items():
        camel = "nvmlClocksThrottleReason" + "".join(p.capitalize() for p in name.split("_"))
        assert getattr(real, camel) == bit


@pytest.mark.processes
def test_a_hanging_driver_does_not_stop_the_watch_over_deaths(tmp_path: Path, scene: Scene) -> None:
    """With NVML hung from its first call, a death is told as ever, and the end comes as ever."""
    binding = tmp_path / "binding"
    binding.mkdir()
    (binding / "pynvml.py").write_text(Path(nvml_standin.__file__).read_text())
    path = os.pathsep.join(filter(None, [str(binding), os.environ.get("PYTHONPATH")]))
    scene.play(H100, init="hang")
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key, PYTHONPATH=path) as process,
    ):
        pid = launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        assert hub.hellos()[-1].gpu_note == "none yet: NVML is starting"
        os.kill(pid, signal.SIGKILL)
        assert hub.wait_for_death(0).signal == signal.SIGKILL
        hub.wait_for(lambda: "NVML has not answered for 5 s" in hub.hellos()[-1].gpu_note)
        scene.play(H100)
        hub.wait_for(lambda: [g.power_w for g in hub.reports()[-1].gpus] == [612.5])
        hub.wait_for(lambda: hub.hellos()[-1].gpu_note == "")
        scene.play({**H100, "clock": "hang"})
        process.terminate()
        assert process.wait(60) == 0
