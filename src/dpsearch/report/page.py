"""From parts to one HTML file: templates, data and scripts that nothing in the data can escape."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dpsearch._numbers import brief

# Plotly's bundle with WebGL scatter plots; assets/README.md says where it comes from.
PLOTLY = "plotly-gl2d-3.7.0.min.js.gz"
_INTEGERS = (np.int8, np.int16, np.int32)


def render(template: str, **context: Any) -> str:
    """Fill a template; everything is escaped unless it comes from this package's own files."""
    import jinja2
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """A name that may be broken after underscores and the like."""
        return Markup(re.sub(r"([_./:-])(?=\w)", r"\1<wbr>", str(escape(name))))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _text(f"templates/{name}")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"brief": brief, "breakable": breakable}
    scripts = [plotly(), _text("assets/report.js")]
    return environment.get_template(template).render(
        **context,
        policy=policy(scripts),
        style=Markup(_text("assets/report.css")),
        scripts=[Markup(script) for script in scripts],
        data=Markup(to_json(context["payload"])),
    )


def policy(scripts: list[str]) -> str:
    """A content security policy under which only these scripts run, and nothing is fetched.

    Plotly's WebGL makes functions from text, which is what 'unsafe-eval' allows.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def to_json(value: Any) -> str:
    """JSON that can stand inside a script element: no <, >, & nor line separators in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(values: Any) -> dict[str, str]:
    """An array as base64 in the smallest type that holds it exactly, for the page to unpack."""
    array = np.asarray(values)
    if array.dtype.kind in "iu" or (
        array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all()
    ):
        low, high = (array.min(), array.max()) if array.size else (0, 0)
        for kind in _INTEGERS:
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
                return _packed(array.astype(kind))
    array = array.astype(np.float64)
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    return _packed(single if np.array_equal(single, array, equal_nan=True) else array)


def _packed(array: Any) -> dict[str, str]:
    little = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.str[1:], "data": base64.b64encode(little.tobytes()).decode()}


@cache
def plotly() -> str:
    packed_script = files("dpsearch.report").joinpath("assets", PLOTLY).read_bytes()
    return gzip.decompress(packed_script).decode()


def _text(name: str) -> str:
    return files("dpsearch.report").joinpath(name).read_text(encoding="utf-8")
