"""How the tests compile: with little work, except where the optimiser may change a number."""

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""What `conftest.py` asks of XLA for all tests: the same programs with a fifth of the work.

Passes over the graph are those of users. What is left out comes after them: LLVM's
optimisation, with its fused multiply-adds, and the newer of two generators of loops.
"""

AS_USERS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
"""`compiler_options` of `jax.jit` that undo it: XLA's defaults."""


def flags(options: dict) -> str:
    """Options as XLA_FLAGS holds them."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
