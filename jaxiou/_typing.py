"""The names that signatures use for arrays."""

from typing import TypeAlias

import jax
import numpy as np

ArrayLike: TypeAlias = jax.Array | np.ndarray
"""What public functions take: arrays, not lists, as in `jax.numpy`."""
