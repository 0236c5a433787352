"""What the readings of GPUs tell: heat, errors, and kernels that wait for each other."""

from typing import Any

import pytest

from rankscope.hub import snapshot
from rankscope.protocol import messages as m
from support.world import World


def gpu(index: int, **changes: Any) -> m.GpuSample:
    fields: dict[str, Any] = {
        "index": index,
        "name": "H200",
        "utilisation_percent": 97.0,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 1 << 37,
        "temperature_c": 64.0,
        "power_w": 650.0,
        "sm_clock_mhz": 1980.0,
        "throttle_reasons": (),
        "ecc_uncorrected": 0,
        "nvlink_errors": 3,
    }
    return m.GpuSample(**(fields | changes))


def world(ranks: int = 2) -> World:
    """Ranks on GPUs of one node, with their first steps behind them."""
    found = World(ranks=ranks)
    for rank in range(ranks):
        found.hello(rank, device=f"cuda:{rank}")
    return found.step().step()


def replay(found: World, *readings: tuple[m.GpuSample, ...], steps: bool = True) -> World:
    """One reading a second, while the ranks train."""
    for gpus in readings:
        found.from_node("node-0", m.NodeReport, processes=(), gpus=gpus)
        if steps:
            found.step(step_s=1.0)
        else:
            found.advance(1.0)
        found.tick()
    return found


HOT = ("hw_thermal_slowdown", "sw_power_cap")


def test_a_gpu_that_heat_slows_down_is_told_once_it_lasts() -> None:
    """With its rank, its reason and its readings; a moment is nothing."""
    cool, hot = (gpu(0), gpu(1)), (gpu(0), gpu(1, throttle_reasons=HOT, temperature_c=91.0))
    found = replay(world(), cool, hot, hot, hot)
    assert found.kinds() == []
    finding = replay(found, hot, hot, hot).finding("gpu-throttled")
    assert (finding.ranks, finding.severity) == ([1], "warning")
    assert finding.headline == "GPU 1 of node-0 is throttled by hw thermal slowdown"
    assert "GPU 1 of node-0 (rank 1): hw thermal slowdown for" in finding.evidence[0]
    assert "91 °C" in finding.evidence[0]


def test_it_is_over_when_it_has_been_cool_for_a_while() -> None:
    """Not at the first cool reading: it comes and goes."""
    cool, hot = (gpu(0), gpu(1)), (gpu(0), gpu(1, throttle_reasons=HOT))
    found = replay(world(), *[hot] * 8, *[cool] * 5, *[hot] * 2)
    assert found.kinds() == ["gpu-throttled"]
    assert replay(found, *[cool] * 13).kinds() == []


@pytest.mark.parametrize("reason", ["sw_power_cap", "applications_clocks_setting", "sync_boost"])
def test_a_limit_that_somebody_set_is_no_finding(reason: str) -> None:
    """At full load a power cap is the ordinary state."""
    capped = (gpu(0, throttle_reasons=(reason,)), gpu(1, throttle_reasons=(reason,)))
    assert replay(world(), *[capped] * 20).kinds() == []


def test_memory_errors_since_the_run_began_are_critical() -> None:
    """Older ones are not this run's."""
    old, new = (gpu(0, ecc_uncorrected=4), gpu(1)), (gpu(0, ecc_uncorrected=6), gpu(1))
    found = replay(world(), old, old)
    assert found.kinds() == []
    finding = replay(found, new, new).finding("gpu-errors")
    assert (finding.ranks, finding.severity) == ([0], "critical")
    assert "2 memory errors that could not be corrected since the run began" in finding.headline


def test_a_link_with_many_errors_is_a_warning() -> None:
    """A few retries are none."""
    found = replay(world(), (gpu(0), gpu(1)), (gpu(0), gpu(1, nvlink_errors=8)))
    assert found.kinds() == []
    finding = replay(found, (gpu(0), gpu(1, nvlink_errors=500))).finding("gpu-errors")
    assert (finding.ranks, finding.severity) == ([1], "warning")
    assert "497 errors on its NVLinks" in finding.headline


def test_a_gpu_that_fell_off_the_bus_is_critical() -> None:
    """The sentinel says so in its note."""
    found = world()
    note = "GPU 1 is lost: it fell off the bus, reboot the node"
    found.from_node(
        "node-0", m.NodeHello, run="run-1", host="node-0", pid=7, gpu_note=note, stack_note="",
        facts={},
    )  # fmt: skip
    finding = found.finding("gpu-errors")
    assert (finding.ranks, finding.victims, finding.severity) == ([], [0, 1], "critical")
    assert note in finding.headline


def test_gpus_that_do_not_tell_are_no_finding() -> None:
    """Devices without ECC, NVLink or utilisation."""
    dumb = tuple(
        gpu(i, utilisation_percent=None, ecc_uncorrected=None, nvlink_errors=None) for i in (0, 1)
    )
    assert replay(world(), *[dumb] * 5).kinds() == []


def test_busy_gpus_of_a_run_that_does_not_move_are_told() -> None:
    """All of them, for some time; the finding accuses nobody."""
    found = replay(world(), *[(gpu(0), gpu(1))] * 3)
    replay(found, *[(gpu(0), gpu(1))] * 15, steps=False)
    finding = found.finding("gpu-spinning")
    assert (finding.ranks, finding.victims) == ([], [0, 1])
    replay(found, (gpu(0), gpu(1)))
    assert found.kinds() == []


def test_one_idle_gpu_is_no_spinning() -> None:
    """That rank is somewhere else than in a kernel."""
    found = replay(world(), *[(gpu(0), gpu(1))] * 3)
    replay(found, *[(gpu(0), gpu(1, utilisation_percent=0.0))] * 15, steps=False)
    assert "gpu-spinning" not in found.kinds()


def test_what_gpus_were_like_outlives_the_hub() -> None:
    """Counters before the run are remembered, else a restart would forget them."""
    found = replay(world(), (gpu(0, ecc_uncorrected=4), gpu(1)))
    again = snapshot.load(snapshot.dump(found.state))
    assert again.gpus.watched == found.state.gpus.watched
