"""PyTorch, loaded in two thirds of the time: what training does not use of it comes on demand."""

import gc
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

UNUSED = ("torch._meta_registrations", "torch.export", "torch.masked", "torch.distributions")
"""Modules that `import torch` executes for what is traced or compiled, and for statistics."""

COMPILER = "torch._dynamo"
"""The module that expects them all; `torch.optim` imports it, too."""


def load() -> None:
    """Import PyTorch, and what of the trainer needs it."""
    sys.meta_path.insert(0, OnDemand(UNUSED, COMPILER))
    # A fifth longer if what is made, which lives until the end, is looked through for garbage
    # again and again.
    gc.disable()
    try:
        import trainer.loop  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


class OnDemand(MetaPathFinder):
    """Has modules executed when they are asked for something, or when `last` is imported."""

    def __init__(self, names: Sequence[str], last: str) -> None:
        self._names, self._last = names, last

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder.find_spec`."""
        if fullname == self._last:
            for module in [sys.modules.get(name) for name in self._names]:
                if isinstance(module, _Deferred):
                    module.execute()
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec and spec.loader:
            spec.loader = _Deferring(spec.loader)
        return spec


class _Deferring(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__dict__.pop("__path__", None)  # whose search is a demand, too
        module.__class__ = _Deferred


class _Deferred(ModuleType):
    def execute(self) -> None:
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        spec.loader.exec_module(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what is asked of any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.execute()
        return getattr(self, name)
