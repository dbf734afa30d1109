"""The switches every test runs under: strict types and ranks, checked shapes, four devices."""

import gc
import itertools
import os
from pathlib import Path

# Before JAX starts: four host devices, so that sharding is tested on any machine; and one
# thread for each compilation, as pytest-xdist keeps every core busy already.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=4",
        "--xla_cpu_multi_thread_eigen=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)
# No display, and no window, when an example draws. A GPU only for those who ask for it.
os.environ["MPLBACKEND"] = "Agg"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jaxtyping
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Before the first import of the package: its signatures are checked whenever it is traced.
jaxtyping.install_import_hook("jaxiou", "typechecker.check")


MOST_MAPS, TESTS = 40_000, itertools.count(1)


@pytest.fixture
def without_jaxtyping():
    """Users' own errors: jaxtyping would raise before the library's checks do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def x64():
    """64-bit types for one test; elsewhere they are off, as they are for users."""
    with jax.enable_x64(True):
        yield


def pytest_runtest_teardown():
    """Compiled programs take memory maps, and XLA crashes where a process has 65,530 of them,
    the most that Linux allows. They are let go long before; what is used again, compiles again.
    """
    maps = Path("/proc/self/maps")
    if next(TESTS) % 20 or not maps.exists():  # it takes a while to read
        return
    if maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def pytest_terminal_summary(terminalreporter):
    """Prints what the catalogue leaves out, and why."""
    exemptions: dict[str, set[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for kind, value in getattr(report, "user_properties", ()):
                if kind == "exempt":
                    row, reason, transformation = value
                    exemptions.setdefault(f"{row} ({reason})", set()).add(transformation)
    if exemptions:
        terminalreporter.section("exempt from the catalogue")
        for row, transformations in sorted(exemptions.items()):
            terminalreporter.line(f"{row}: {', '.join(sorted(transformations))}")
