"""Write the figure and the table of `docs/at_a_glance.md` from the results of other runs.

    python -m benchmarks.glance

The clusters of dpsearch come from `levels.json`, and the results of the other tools from `peers`.
Both are for the same nine labelled tables.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- glance -->"


def measured() -> list[tuple[str, float, float, str]]:
    """Return tools with their mean ARI and AMI and the tables without an answer, best first."""
    runs = json.loads((DOCS / "benchmarks/levels.json").read_text("utf-8"))
    found = []
    for name, group in (("dpsearch", "raw"), ("dpsearch, common columns", "common columns")):
        listed = [run[5] for run in runs if run[1] == f"listed tables, {group}"]
        ari, ami, _ = np.mean(listed, axis=0)
        found.append((name, float(ari), float(ami), "0"))
    with (DOCS / "benchmarks/tables/peers-summary.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["tool"].startswith("dpsearch"):
                means = float(row["mean ARI"]), float(row["mean AMI"])
                found.append((row["tool"], *means, row["sets without an answer"]))
    return sorted(found, key=lambda one: -one[1])


def draw(found: list[tuple[str, float, float, str]]) -> None:
    """Draw a bar for each tool; those that were given the number of classes are pale."""
    figure, axis = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    at = np.arange(len(found))[::-1]
    ours, given, others = "#d55e00", "#c8d6e0", "#0072b2"
    colours = [
        ours if name.startswith("dpsearch") else given if name.endswith("*") else others
        for name, *_ in found
    ]
    bars = axis.barh(at, [ari for _, ari, *_ in found], color=colours)
    axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axis.set_yticks(at, [name.replace(" *", "") for name, *_ in found], fontsize=8)
    axis.set_xlabel("adjusted Rand index with the true classes, mean over nine tables")
    axis.set_xlim(0.0, 0.8)
    axis.spines[["top", "right"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (ours, others, given)]
    labels = ["dpsearch", "not given the number of classes", "given the number of classes"]
    axis.legend(handles, labels, loc="lower right", frameon=False, fontsize=8)
    figure.savefig(DOCS / "benchmarks/figures/glance.png", dpi=150)


def main() -> None:
    found = measured()
    draw(found)
    lines = [
        "| tool | mean ARI | mean AMI | tables without an answer |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, ari, ami, missing in found:
        shown = name.replace("*", "\\*")
        lines.append(f"| {shown} | {ari:.2f} | {ami:.2f} | {missing} |")
    page = DOCS / "at_a_glance.md"
    text = page.read_text("utf-8")
    table = f"{MARK}\n\n" + "\n".join(lines) + f"\n\n{MARK}"
    page.write_text(re.sub(f"{MARK}.*{MARK}", lambda _: table, text, flags=re.S), "utf-8")


if __name__ == "__main__":
    main()
