"""What the documentation shows runs: every docstring's example, every Python block of README."""

import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxiou

# What is shown is what users see, to the last digit.
pytestmark = pytest.mark.usefixtures("compiled_as_users_have_it")

ROOT = Path(__file__).parent.parent
COMPARED = ("torch", "torchvision", "torchmetrics")
"""Packages that README may compare with, and that tests do not install."""


def examples():
    """The doctests of a package, `jnp`, `jax` and `np` at hand.

    doctest's own finder passes over functions that a decorator wraps, which is most of ours.
    """
    names = [m.name for m in pkgutil.walk_packages(jaxiou.__path__, f"{jaxiou.__name__}.")]
    for module in map(importlib.import_module, [jaxiou.__name__, *names]):
        globs = {**vars(module), "jax": jax, "jnp": jnp, "np": np}
        for name, text in docstrings(module):
            test = doctest.DocTestParser().get_doctest(text, globs, name, name, 0)
            if test.examples:
                yield pytest.param(test, id=name)


def docstrings(thing, name=None):
    """The docstrings of a module or class and of all that is defined in it."""
    name = name or thing.__name__
    yield name, inspect.getdoc(thing) or ""
    module = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    for inner_name, inner in vars(thing).items():
        if not callable(inner) or getattr(inner, "__module__", None) != module:
            continue
        if inspect.isclass(inner):
            yield from docstrings(inner, f"{name}.{inner_name}")
        else:
            yield f"{name}.{inner_name}", inspect.getdoc(inner) or ""


@pytest.mark.parametrize("example", list(examples()))
def test_docstring_shows_what_happens(example):
    report: list[str] = []
    runner = doctest.DocTestRunner()
    runner.run(example, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


def blocks():
    """The Python blocks of README, each by the line on which it begins."""
    text = (ROOT / "README.md").read_text()
    for block in re.finditer(r"^( *)```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, block.start(2))
        yield pytest.param("\n" * line + textwrap.dedent(block[2]), id=f"line {line + 1}")


@pytest.mark.parametrize("block", list(blocks()))
def test_readme_block_runs_by_itself(block, tmp_path, monkeypatch):
    """As a user would run it: with its own imports, and JAX as it comes."""
    for package in COMPARED:
        if re.search(rf"^\s*(import|from) {package}\b", block, re.MULTILINE):
            pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(block, ROOT / "README.md", "exec"), {"__name__": "__main__"})
