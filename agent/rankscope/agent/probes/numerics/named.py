"""The parameters that are watched, under the names that the user's model gives them."""

import weakref
from typing import Any, NamedTuple

from rankscope.agent.probes.gradients.names import named_parameters


class Parameters(NamedTuple):
    """All that are watched, in the order of the models; the tuples are equally long."""

    names: tuple[str, ...]
    tensors: list[Any]
    trained: tuple[bool, ...]
    """Whether an optimizer that is watched has it."""


Place = tuple[Any, Any, Any]
"""Where a parameter is kept: optimizer's number, group's number and its own; or a weak reference
to a module, the parameter's name in it, and None."""


class Named:
    """Holds no parameter alive, and no weak reference to one.

    ``Module.to`` swaps a parameter with the converted one where it is a DTensor, or where torch is
    told to, and refuses one that anybody refers to weakly.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self._by_id: dict[int, str] = {}
        self._names: tuple[str, ...] = ()
        self._places: list[Place] = []
        self._trained: tuple[bool, ...] = ()
        self._sizes: list[int] = []

    def add_model(self, model: Any) -> None:
        self._models.append(weakref.ref(model))
        self._names = ()

    def add_optimizer(self, optimizer: Any) -> None:
        self._optimizers.append(weakref.ref(optimizer))
        self._names = ()

    def tidy(self) -> None:
        """Models or optimizers are gone."""
        self._models = [one for one in self._models if one() is not None]
        self._optimizers = [one for one in self._optimizers if one() is not None]
        self._names = ()

    def read(self) -> Parameters:
        """What there is now; looked up again only when an optimizer's lists have changed.

        The parameters of FSDP2 are the shards, also while the modules hold the gathered ones: it is
        the shards that optimizers have.
        """
        optimizers = [one for one in (held() for held in self._optimizers) if one is not None]
        sizes = [len(group["params"]) for one in optimizers for group in one.param_groups]
        if self._names and sizes == self._sizes:
            tensors = self._kept(optimizers)
            if all(one is not None for one in tensors):
                return Parameters(self._names, tensors, self._trained)
        found = self._look(optimizers)
        self._places = self._places_of([tensor for _, tensor, _ in found], optimizers)
        self._sizes = sizes
        self._by_id = {id(tensor): name for name, tensor, _ in found}
        self._names = tuple(name for name, _, _ in found)
        self._trained = tuple(trained for _, _, trained in found)
        return Parameters(self._names, [tensor for _, tensor, _ in found], self._trained)

    def _kept(self, optimizers: list[Any]) -> list[Any]:
        """What is now where each parameter was found; None where nothing is."""
        lists = [[group["params"] for group in one.param_groups] for one in optimizers]
        tensors: list[Any] = []
        for first, second, third in self._places:
            if third is not None:
                tensors.append(lists[first][second][third])
            else:
                module = first()
                held = () if module is None else module._parameters
                there = second in held  # not ``get``: what TorchScript has there is no dictionary
                tensors.append(held[second] if there else None)
        return tensors

    def _places_of(self, tensors: list[Any], optimizers: list[Any]) -> list[Place]:
        places: dict[int, Place] = {}
        for model in (watched() for watched in self._models):
            for module in model.modules() if model is not None else ():
                reference = weakref.ref(module)
                for name, one in module._parameters.items():
                    places.setdefault(id(one), (reference, name, None))
        for number, optimizer in enumerate(optimizers):
            for at, group in enumerate(optimizer.param_groups):
                for index, one in enumerate(group["params"]):
                    places[id(one)] = (number, at, index)
        return [places[id(tensor)] for tensor in tensors]

    def _look(self, optimizers: list[Any]) -> list[tuple[str, Any, bool]]:
        trained: dict[int, Any] = {}
        for one in optimizers:
            trained |= {id(p): p for group in one.param_groups for p in group["params"]}
        sharded = any(_is_shard(tensor) for tensor in trained.values())
        found: dict[int, tuple[str, Any, bool]] = {}
        for watched in self._models:
            model = watched()
            for name, tensor in named_parameters(model) if model is not None else ():
                yes = id(tensor) in trained
                if id(tensor) in found or (sharded and not yes and not _is_shard(tensor)):
                    continue
                found[id(tensor)] = name, tensor, yes
        for number, (key, tensor) in enumerate(trained.items()):
            if key not in found:
                name = self._by_id.get(key, f"parameter {number} of the optimizer")
                found[key] = name, tensor, True
        return list(found.values())


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "_local_tensor")
