"""The words for each beginning: headline, and the next step, which changes nothing."""

from collections.abc import Callable

from rankscope.hub.diagnose.nonfinite.origin import Origin
from rankscope.hub.diagnose.text import ranks_text
from rankscope.protocol.messages import Sign, Stage

STAGES = {
    Stage.INPUT: "input",
    Stage.PARAMETER: "parameters before the update",
    Stage.FORWARD: "module outputs",
    Stage.LOSS: "loss",
    Stage.GRADIENT: "own gradient",
    Stage.CAST: "gradient as it is reduced",
    Stage.REDUCED: "reduced gradient",
    Stage.OPTIMIZER: "optimizer state",
    Stage.UPDATED: "parameters after the update",
}
"""What a stage's numbers are called."""

ONE = STAGES | {
    Stage.PARAMETER: "before the update",
    Stage.FORWARD: "output",
    Stage.UPDATED: "after the update",
}
"""The same of a single module or parameter: ``output of blocks.2``."""


def article(value: str) -> str:
    return {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}.get(value, value)


def at(sign: Sign, step: int) -> str:
    """``in step 12, microbatch 1``."""
    return f"in step {step}" + (f", microbatch {sign.microbatch}" if sign.microbatch else "")


def headline(origin: Origin, step: int) -> str:
    """One line: who, what, where, when."""
    sign = first(origin)
    who = ranks_text(origin.ranks) if origin.ranks else ""
    return _HEADLINES[origin.kind](origin, sign, who, step)


def first(origin: Origin) -> Sign:
    """The sign of the first rank."""
    return origin.signs[min(origin.signs)]


def _input(origin: Origin, sign: Sign, who: str, step: int) -> str:
    place = f" ({sign.name})" if sign.name else ""
    return f"{who} got a batch with {article(sign.value)} in it{place} {at(sign, step)}"


def _forward(origin: Origin, sign: Sign, who: str, step: int) -> str:
    return (
        f"{article(sign.value)} came out of {sign.name or 'a module'} on {who} {at(sign, step)}; "
        "its input was finite"
    )


def _loss(origin: Origin, sign: Sign, who: str, step: int) -> str:
    return f"the loss of {who} is {article(sign.value)} {at(sign, step)}"


def _gradient(origin: Origin, sign: Sign, who: str, step: int) -> str:
    return (
        f"{article(sign.value)} in the gradient of {sign.name or 'a parameter'} on {who} "
        f"{at(sign, step)}, before any reduction"
    )


def _cast(origin: Origin, sign: Sign, who: str, step: int) -> str:
    return (
        f"the gradient of {sign.name or 'a parameter'} on {who} is finite, and "
        f"{article(sign.value)} in the type it is reduced in, {at(sign, step)}"
    )


def _reduction(origin: Origin, sign: Sign, who: str, step: int) -> str:
    what = f"the reduced gradient of {sign.name or 'a parameter'} is {article(sign.value)}"
    if origin.only is not None:
        others = "other's" if origin.finite_others == 1 else "others'"
        return (
            f"{what} in step {step}; rank {origin.only} is the only one whose own gradients were "
            f"not all looked at in that step, the {others} were finite"
        )
    if origin.unseen:
        return (
            f"{what} in step {step}; where from is not known: the own gradients of "
            f"{ranks_text(origin.unseen)} were not all looked at"
        )
    return f"{what} in step {step}, though every rank's own was finite"


def _parameter(origin: Origin, sign: Sign, who: str, step: int) -> str:
    return (
        f"{sign.name or 'a parameter'} was {article(sign.value)} on {who} before step {step} began"
    )


def _optimizer(origin: Origin, sign: Sign, who: str, step: int) -> str:
    if sign.stage == Stage.OPTIMIZER:
        return (
            f"{article(sign.value)} in the optimizer's state of {sign.name or 'a parameter'} on "
            f"{who} in step {step}"
        )
    what = f"the update of step {step} made {sign.name or 'a parameter'} {article(sign.value)}"
    if origin.unseen:
        on = f" on {ranks_text(sorted(origin.signs))}"
        whose = ranks_text(origin.unseen)
        return f"{what}{on}; own gradients of {whose} were not all looked at in that step"
    return f"{what} on {who}, with finite gradients"


_HEADLINES: dict[str, Callable[[Origin, Sign, str, int], str]] = {
    "nonfinite-input": _input,
    "nonfinite-forward": _forward,
    "nonfinite-loss": _loss,
    "nonfinite-gradient": _gradient,
    "nonfinite-cast": _cast,
    "nonfinite-reduction": _reduction,
    "nonfinite-parameter": _parameter,
    "nonfinite-optimizer": _optimizer,
}


def next_step(origin: Origin, step: int) -> str:
    """What to look at; it changes nothing."""
    sign = first(origin)
    rank = origin.ranks[0] if origin.ranks else min(origin.signs)
    name = sign.name or "it"
    if origin.only is not None and origin.stage == Stage.REDUCED:
        return (
            f"look at what rank {origin.only} read and computed in step {step}: rankscope numerics "
            f"--rank {origin.only}"
        )
    return {
        "nonfinite-input": f"look at the data rank {rank} read for step {step}, and at what is "
        "done to them before the model",
        "nonfinite-forward": f"look for an overflow, a division by 0 or a log of 0 in {name}",
        "nonfinite-loss": "look at how the loss is made of finite outputs: a mean over no tokens, "
        "a log of 0, an overflow",
        "nonfinite-gradient": f"look at the backward of {name} (a sqrt or norm at 0, a division): "
        "torch.autograd.detect_anomaly() names the line",
        "nonfinite-cast": f"compare its largest numbers with its peers': rankscope numerics "
        f"--rank {rank}",
        "nonfinite-reduction": "compare the norms with what the reduced type can hold: rankscope "
        "numerics",
        "nonfinite-parameter": f"look for what writes to {name} outside the optimizer, and at the "
        "checkpoint it was loaded from",
        "nonfinite-optimizer": f"look at the optimizer's state of {name} on rank {rank}, at its "
        "learning rate and at the checkpoint it was loaded from",
    }[origin.kind]
