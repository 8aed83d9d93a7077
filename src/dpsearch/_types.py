"""Names for the array types that appear throughout the package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]
Ints: TypeAlias = NDArray[np.int64]
Ints32: TypeAlias = NDArray[np.int32]
Ints8: TypeAlias = NDArray[np.int8]
Rng: TypeAlias = np.random.Generator
# What users pass: arrays, nested lists, pandas or polars frames, SciPy sparse matrices.
ArrayLike: TypeAlias = Any
