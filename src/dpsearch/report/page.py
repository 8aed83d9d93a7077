"""Fill the templates of a report, escaping the data so that they cannot become markup or code."""

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

from dpsearch._extras import naming_extras
from dpsearch._numbers import brief

# Plotly's bundle with WebGL scatter plots; assets/README.md says where it comes from.
PLOTLY = "plotly-gl2d-3.7.0.min.js.gz"
# Later scripts use what earlier ones define.
SCRIPTS = ("data", "levels", "map", "clusters", "profiles", "table", "report")


def render(template: str, **context: Any) -> str:
    """Fill a template, escaping everything that does not come from this package's own files."""
    with naming_extras("reports"):
        import jinja2
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """Allow line breaks in a name after underscores and similar characters."""
        return Markup(re.sub(r"([_./:-])(?=\w)", r"\1<wbr>", str(escape(name))))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _text(f"templates/{name}")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"brief": brief, "breakable": breakable}
    scripts = [plotly(), own_script()]
    return environment.get_template(template).render(
        **context,
        policy=policy(scripts),
        style=Markup(_text("assets/report.css")),
        scripts=[Markup(script) for script in scripts],
        data=Markup(to_json(context["payload"])),
    )


def own_script() -> str:
    """Return the page's own script, joined from its files."""
    parts = "".join(_text(f"assets/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def policy(scripts: list[str]) -> str:
    """Return a content security policy by which only these scripts run, and nothing is fetched.

    'unsafe-eval' is needed because Plotly's WebGL code makes functions from text.
    """
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def to_json(value: Any) -> str:
    """Return JSON for a script element, with <, >, & and line separators escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(values: Any) -> dict[str, str]:
    """Return an array as base64, in the smallest type that holds it exactly."""
    array = np.asarray(values)
    kinds: list[Any] = [np.float32]
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array).all():
            kinds = [np.int8, np.int16, np.int32, np.float32]
        exact = (one for one in map(array.astype, kinds) if np.array_equal(one, array, True))
        array = next(exact, array.astype(np.float64))
    little = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.str[1:], "data": base64.b64encode(little.tobytes()).decode()}


def single(values: Any) -> dict[str, str]:
    """Pack values in single precision, which is enough for plots, unless they are too large."""
    array = np.asarray(values, dtype=np.float64)
    few = np.abs(array[np.isfinite(array)]).max(initial=0.0) < np.finfo(np.float32).max
    return packed(array.astype(np.float32) if few else array)


@cache
def plotly() -> str:
    packed_script = files("dpsearch.report").joinpath("assets", PLOTLY).read_bytes()
    return gzip.decompress(packed_script).decode()


def _text(name: str) -> str:
    return files("dpsearch.report").joinpath(name).read_text(encoding="utf-8")
