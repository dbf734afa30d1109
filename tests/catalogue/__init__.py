"""The catalogue: one row for every public function, and for products of the factories.

`tests/test_catalogue.py` drives each row through every transformation of JAX. To add an
area, add a file here with a list `ROWS`; see `row.Row` for what a row says.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jaxiou
from catalogue.row import Row


def _rows() -> list[Row]:
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    areas = (importlib.import_module(f"{__name__}.{name}") for name in modules)
    return [row for area in areas for row in getattr(area, "ROWS", ())]


ROWS = _rows()


def public_functions() -> dict[str, Callable[..., Any]]:
    """Every function that `__all__` of a public module lists, and every public method of a
    class there, by dotted name; one that several modules list, by its home's alone.
    """
    found: dict[str, Callable[..., Any]] = {}
    for place, module in public_modules().items():
        for name in module.__all__:
            x = getattr(module, name)
            if isinstance(x, type):
                methods = {n: m for n, m in vars(x).items() if inspect.isfunction(m)}
                found |= {f"{place}.{name}.{n}": m for n, m in methods.items() if n[0] != "_"}
            elif callable(x) and x.__module__ == module.__name__:
                found[f"{place}.{name}"] = x
    return found


def public_modules() -> dict[str, ModuleType]:
    """The modules that `jaxiou.__all__` lists, and those that they list, by dotted name."""

    def below(prefix: str, module: ModuleType) -> dict[str, ModuleType]:
        listed = ((name, getattr(module, name)) for name in module.__all__)
        inner = {f"{prefix}{name}": x for name, x in listed if isinstance(x, ModuleType)}
        for place, x in list(inner.items()):
            inner |= below(f"{place}.", x)
        return inner

    return below("", jaxiou)
