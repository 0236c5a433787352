"""The probe of gradients before reduction: decides where to stand, and keeps the ledger."""

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import torch

from rankscope.agent import events
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.facts import trainer_of
from rankscope.agent.probes.gradients import ddp, fsdp1, measure, reduced
from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.fsdp2 import Units, UnitWatch
from rankscope.agent.probes.gradients.late import Arrived, LateNorms, Parts
from rankscope.agent.probes.gradients.ledger import Ledger, by_trouble, late_signs
from rankscope.agent.probes.gradients.names import named_parameters
from rankscope.agent.probes.gradients.scaler import Scalers
from rankscope.agent.signs import MAX_NAMES
from rankscope.protocol.messages import FromRank, ParameterNorms, Stage

SCALE: Final = -1
"""In the place of a parameter's index: the gradient scaler's factor."""

LOOK_FOR_UNITS: Final = 8
"""Forwards after which a backward of FSDP2 must have come by."""

LOOK_AGAIN: Final = 64
"""Forwards after which a model is searched for parameters that it did not have before."""


class Gradients(Probe):
    name: ClassVar[str] = "gradients"
    numbers: ClassVar[bool] = True
    guarded: ClassVar[tuple[str, ...]] = ("on_forward", "on_update", "on_backward_end")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.ledger = Ledger(observer)
        self.late = LateNorms()
        self.scalers = Scalers()
        self.units = Units()
        self.ledger.scale = self.scalers.scale
        self.ledger.scaled = lambda: self.scalers.used() is not None
        self.places: list[Place] = []
        self._facts: dict[str, str] = {}
        observer.update_begins.append((self, self.on_update))
        observer.backward_ends.append((self, self.on_backward_end))
        self._late_norms: dict[int, dict[int, float]] = {}

    def install(self) -> None:
        self.scalers.install()

    def watch_model(self, model: Any, *, first: bool) -> None:
        place = Place(self, model)
        self.places.append(place)
        begins = (self, functools.partial(self.on_forward, place))
        place.removals.append(self.observer.calls.add(model, begins=begins))

    def tidy(self) -> None:
        gone = [place for place in self.places if place.gone]
        self.places = [place for place in self.places if not place.gone]
        for place in gone:
            place.remove()
            self.ledger.forget(place.owner)
        self.units.watchers = [one.units for one in self.places if one.units is not None]
        for place in self.places:
            place.look_again()  # what is left of a model that is gone may be part of another one

    def uninstall(self) -> None:
        for place in self.places:
            place.remove()
        self.places.clear()
        self.scalers.uninstall()
        self.units.uninstall()
        self.ledger.turns.rest()

    def on_forward(self, place: "Place", now: float, model: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            place.on_forward(model)

    def on_backward_end(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        for place in self.places:
            if place.hooks is not None:
                place.hooks.deferred.forget()

    def gathered(self) -> set[int]:
        """The ids of the parameters that have no hook of their own, and are looked at."""
        hooks = [place.hooks for place in self.places if place.hooks is not None]
        return {id(parameter) for one in hooks for parameter in one.gathered()}

    def holds(self) -> bool:
        """Whether any wait elsewhere than in a parameter's ``grad`` for a later microbatch."""
        return any(place.units is not None and place.units.holds() for place in self.places)

    # the reduced gradient

    def on_update(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The first optimizer is about to use its gradients, whose norm may be known by now."""
        found = self.observer.gradnorm.found
        if found is None or not isinstance(found.value, float):
            return
        if math.isfinite(found.value):
            self.observer.signs.looked(Stage.REDUCED)
            return
        for place in self.places:
            place.on_norm(found.value)

    def look_reduced(self, named: list[tuple[str, torch.Tensor]]) -> None:
        signs = self.observer.signs
        if reduced.look(signs, named, self.ledger.scaler_note()):
            signs.publish()

    def say(self) -> None:
        """What is covered has changed."""
        self.observer.facts_changed = True

    def read(self) -> dict[str, str]:
        """Where gradients are looked at, and what is not covered. For the hello; any thread."""
        facts: dict[str, str] = {}
        found = sorted({place.where for place in self.places if place.where})
        if found:
            turns = self.ledger.turns
            facts["numerics"] = ", ".join((*found, *filter(None, (turns.text(),))))
            if turns.every > 1:
                facts["numerics_large_every"] = str(turns.every)
        missing = {name: why for place in self.places for name, why in place.not_covered().items()}
        if missing:
            told = "; ".join(f"{name} ({why})" for name, why in list(missing.items())[:8])
            more = len(missing) - 8
            facts["numerics_not_covered"] = told + (f"; and {more} more" if more > 0 else "")
        return facts

    def answer(self, step_of: Callable[[int], int]) -> Iterator[tuple[type[FromRank], Any]]:
        """The norms of all parameters in the last step, for a hub that asks. Any thread."""
        ledger = self.ledger
        whole = ledger.norms and not ledger.partial
        number, norms = (ledger.number, ledger.norms) if whole else ledger.last
        if norms:
            told, left_out = by_trouble(ledger.names, norms.copy())
            fields = {"step": step_of(number), "norms": tuple(told), "left_out": left_out}
            yield ParameterNorms, fields

    # what comes late

    def submit(self, number: int, microbatch: int, parts: Parts) -> None:
        """Norms that are on a GPU set out, with the scaler's factor where that is there, too."""
        scale = self.scalers.tensor()
        if scale is not None and scale.is_cuda and scale.device == parts[0][1].device:
            parts = [*parts, ([SCALE], scale.detach().reshape(1))]
        self.late.submit(number, microbatch, parts)

    def read_late(self) -> None:
        """Note down what has come off a GPU meanwhile. On a thread that trains."""
        for arrived in self.late.poll():
            self._arrived(arrived)

    def _arrived(self, arrived: Arrived) -> None:
        number, microbatch, found = arrived
        scale = next((value for index, value in found if index == SCALE), 1.0)
        found = [(index, value) for index, value in found if index != SCALE]
        norms = self._late_norms.setdefault(number, {})
        fresh = [
            (index, norm)
            for index, norm in found
            if not math.isfinite(norm) and math.isfinite(norms.get(index, 0.0))
        ]
        norms.update(found)
        now = time.monotonic()
        note = self.observer.noted.append
        if fresh:
            signs = late_signs(
                self.ledger.names, microbatch, self.ledger.scaler_note(), fresh, MAX_NAMES
            )
            note((events.SIGNS, now, number, signs, (Stage.GRADIENT,)))
            self.observer.urgent()
        if number < self.observer.number and not self.late.awaits(number):
            total = measure.total(tuple(norms.values())) / (scale or 1.0)
            note((events.LATE, now, number, {"local_norm": total}))
            for old in [one for one in self._late_norms if one <= number]:
                del self._late_norms[old]


class Place:
    """Where the gradients of one model are looked at. Holds neither it nor its parameters."""

    def __init__(self, probe: Gradients, model: Any) -> None:
        self.probe = probe
        self.where = ""
        self.removals: list[Callable[[], None]] = []
        self.hooks: Accumulated | None = None
        self.units: UnitWatch | None = None
        self.owner = id(model)
        """Whose parameters they are, to the ledger."""
        self._model = weakref.ref(model)
        self._left_out: dict[str, str] = {}
        self._forwards = 0

    @property
    def gone(self) -> bool:
        """Whether the model is."""
        return self._model() is None

    def look_again(self) -> None:
        """At the next forward."""
        self._forwards -= self._forwards % LOOK_AGAIN

    def remove(self) -> None:
        for remove in self.removals:
            remove()
        self.removals.clear()
        if self.hooks is not None:
            self.hooks.remove()

    def not_covered(self) -> dict[str, str]:
        return self._left_out | (self.hooks.not_covered if self.hooks is not None else {})

    def on_forward(self, model: Any) -> None:
        """A training forward of ``model`` begins: wrappers and devices are final by now."""
        ledger = self.probe.ledger
        if ledger.bad and ledger.number != self.probe.observer.number:
            self.find_kept(model)
        if self.hooks is not None and not ddp.is_settled(self.hooks, model):
            self.look_again()
        if self._forwards % LOOK_AGAIN == 0:
            self._look(model)
        elif self._forwards == LOOK_FOR_UNITS and self.units is not None and not self.units.fired:
            self._leave_out("FSDP2 units", f"torch {torch.__version__} reduces them another way")
        if self.hooks is not None and self.hooks.turn(self.owner, model):
            self._place(model, set())
        self._forwards += 1

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._left_out:
            self._left_out[name] = why
            self.probe.say()

    def _look(self, model: Any) -> None:
        trainer = trainer_of(model)
        if self.hooks is None:
            self.hooks = Accumulated(self.probe, self.probe.ledger)
            self.hooks.ended = self.on_reduced
        managed: set[int] = set()
        where = "hooks on parameters"
        if trainer == "ddp":
            ddp.settle(self.hooks, model)
        elif trainer == "fsdp1":
            managed = fsdp1.place(self.hooks, model)
            where = "hooks on flat parameters"
        elif trainer == "fsdp2":
            managed = self._look_at_units(model)
            where = "FSDP2 before reduce-scatter" if self.units is not None else ""
        changed = self._place(model, managed)
        if where != self.where or changed:
            self.where = where
            self.probe.say()

    def _look_at_units(self, model: Any) -> set[int]:
        """Watch the units of FSDP2 in ``model``; the ids of the parameters that they shard."""
        assert self.hooks is not None
        if self.units is not None:
            return self.units.learn(model)
        watch = UnitWatch(self.hooks, model)
        if self.probe.units.install():
            self.units = watch
            self.hooks.reduces = watch.take_reduced
            self.probe.units.watchers.append(watch)
        else:
            self._leave_out("FSDP2 units", f"torch {torch.__version__} is not known")
        return watch.learn(model)

    def on_reduced(self) -> None:
        """A backward has ended; its gradients are reduced, and there is a reason to look."""
        model = self._model()
        if model is not None:
            self.probe.look_reduced(reduced.gradients(model))

    def on_norm(self, norm: float) -> None:
        """The global norm of the reduced gradients is not finite; they may have been clipped."""
        model = self._model()
        if model is not None and several_ranks():
            signs = self.probe.observer.signs
            if not signs.shown(Stage.REDUCED):
                note = self.probe.ledger.scaler_note()
                reduced.look(signs, reduced.gradients(model), note, clipped=math.isnan(norm))
                signs.publish()

    def find_kept(self, model: Any) -> None:
        """Of the parameters that were bad: whose gradient was not cleared since."""
        ledger = self.probe.ledger
        ledger.kept = {
            index
            for name, gradient in reduced.gradients(model)
            if (index := ledger.index(id(model), name)) in ledger.bad
            and measure.bad(gradient) is not None
        }

    def _place(self, model: Any, managed: set[int]) -> bool:
        assert self.hooks is not None
        changed = False
        managed = managed | self.probe.gathered()
        for name, parameter in named_parameters(model):
            if id(parameter) in managed or not parameter.requires_grad or self.hooks.has(parameter):
                continue
            if name in self._left_out:
                continue
            self.hooks.together.doubt()  # one more
            if not self.hooks.place(id(model), name, parameter):
                self._leave_out(name, "meta" if parameter.is_meta else "not a leaf")
            changed = True
        return changed


def several_ranks() -> bool:
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
