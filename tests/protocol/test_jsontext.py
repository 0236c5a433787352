"""JSON that every reader takes."""

import json
import math

from rankscope.protocol import jsontext
from support.samples import STATUS


def test_non_finite_numbers_are_strings_at_any_depth() -> None:
    """NaN and infinities never make invalid JSON."""
    value = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": 1.5, "e": None}
    assert json.loads(jsontext.dumps(value)) == {
        "a": "nan",
        "b": ["inf", {"c": "-inf"}],
        "d": 1.5,
        "e": None,
    }


def test_a_status_has_the_keys_others_rely_on() -> None:
    """The documented keys are there by name."""
    document = json.loads(jsontext.dumps(STATUS))
    assert document.keys() >= {
        *("run", "attempt", "world_size", "state", "step", "verdict", "findings", "ranks"),
        *("last_checkpoint", "dropped", "overhead_s_per_step"),
    }
    assert document["ranks"][0].keys() >= {
        *("rank", "host", "pid", "step", "phase", "phase_s", "link", "step_s", "loss"),
        *("grad_norm", "memory_peak_bytes"),
    }
    assert document["ranks"][0]["loss"] == "nan"
