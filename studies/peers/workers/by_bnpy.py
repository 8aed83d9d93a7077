"""bnpy 0.1.7, with the names that NumPy and Python have dropped since put back."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np


def prepare(data: dict[str, Any], settings: dict[str, Any], seed: int) -> Callable[[], Any]:
    old_names = {"float": float, "int": int, "bool": bool, "object": object, "bool8": np.bool_}
    for name, value in old_names.items():
        setattr(np, name, value)
    if not hasattr(inspect, "getargspec"):
        inspect.getargspec = lambda f: inspect.getfullargspec(f)[:4]  # type: ignore[attr-defined]
    import bnpy

    if "X" in data:
        table = bnpy.data.XData(data["X"])
    else:
        table = bnpy.data.BagOfWordsData(
            word_id=data["indices"].astype(int),
            word_count=data["data"].astype(float),
            doc_range=data["indptr"].astype(int),
            vocab_size=int(data["shape"][1]),
        )

    def fit() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            model, _ = bnpy.run(
                table,
                "DPMixtureModel",
                settings["observations"],
                "memoVB",
                # bnpy draws its seed from the task's number and the names of the run.
                taskid=seed + 1,
                output_path=folder,
                doWriteStdOut=False,
                **settings["options"],
            )
        return model.calc_local_params(table)["resp"].argmax(axis=1)

    return fit
