#!/usr/bin/env python3
"""Writes python.safetensors beside this file with Python's safetensors package (pip install safetensors numpy)."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

save_file(
    {
        "матрица": np.arange(6, dtype=np.float32).reshape(2, 3) / 2,
        "scalar": np.array(2.5, dtype=np.float64),
        "empty": np.zeros((0, 4), dtype=np.int32),
        "flags": np.array([True, False, True]),
        "half": np.array([1, 2], dtype=np.float16),
        "counts": np.array([-1, 2**40], dtype=np.int64),
    },
    Path(__file__).with_name("python.safetensors"),
    metadata={"format": "pt"},
)
