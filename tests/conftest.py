"""The switches every test runs under: strict types and ranks, checked shapes, four devices."""

import gc
import itertools
import os
from pathlib import Path

import compiling

# Before JAX starts: four host devices, so that sharding is tested on any machine; one thread
# for each compilation, as pytest-xdist keeps every core busy already; and quick compilation,
# which is most of what the tests take. XLA_FLAGS of whoever calls pytest have the last word:
# with those of `compiling.AS_USERS`, all tests run the programs that users run.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_force_host_platform_device_count=4",
        "--xla_cpu_multi_thread_eigen=false",
        "--xla_cpu_parallel_codegen_split_count=1",
        compiling.flags(compiling.QUICK),
        os.environ.get("XLA_FLAGS", ""),
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

LONGEST = ("test_train_giou", "test_notebooks", "test_train_segmentation", "test_track_digits")
"""Files whose single tests take longest: they run first, that no worker ends on one alone."""


@pytest.fixture
def without_jaxtyping():
    """Users' own errors: jaxtyping would raise before the library's checks do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def compiled_as_users_have_it():
    """A file's programs, those of the library included, as XLA compiles them by default."""
    from jax._src import compiler  # `jax.jit` takes options, but the library's own pass none

    options = compiler.get_compile_options

    def as_users(*args, env_options_overrides=None, **kwargs):
        overrides = compiling.AS_USERS | (env_options_overrides or {})
        return options(*args, env_options_overrides=overrides, **kwargs)

    jax.clear_caches()  # of programs that were compiled with less
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", as_users)
        yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """64-bit types for one test; elsewhere they are off, as they are for users."""
    with jax.enable_x64(True):
        yield


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem not in LONGEST)  # otherwise the order stays


def pytest_collection_finish():
    """What was imported and collected stays: it need not be looked through for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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
