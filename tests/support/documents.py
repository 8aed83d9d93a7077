"""Running the code of a Markdown document, with nothing but the standard library.

    python tests/documents.py docs/tutorial.md

runs one in a folder of its own, with the dpsearch of the Python that it is started by: so `make
dist` tries a wheel where no tests are installed.
"""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_PAGE = "\f"


class Block(NamedTuple):
    language: str  # python or sh
    code: str
    output: str | None  # what the document says that it prints


def blocks(path):
    """Return the blocks of Python and shell code; a plain block right after one is its output."""
    text = Path(path).read_text(encoding="utf-8")
    fences = [
        (match["language"].strip(), match["body"], match.start(), match.end())
        for match in re.finditer(r"^```(?P<language>.*)\n(?P<body>(?:.*\n)*?)```$", text, re.M)
    ]
    found = []
    for at, (language, body, _, end) in enumerate(fences):
        if language not in ("python", "sh"):
            continue
        output = None
        if at + 1 < len(fences):
            following, wanted, begin, _ = fences[at + 1]
            if following in ("", "text") and not text[end:begin].strip():
                output = wanted
        found.append(Block(language, body, output))
    return found


def shell(code):
    """Run a shell's lines with this Python's programs first, and print what they print."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of: {code}")


def run(path, folder):
    """Import a document's blocks as one module file, which Numba needs; return it and the output
    of each block."""
    found = blocks(path)
    end = f"\nprint({_PAGE!r}, end='')\n"
    code = "".join(
        (block.code if block.language == "python" else f"shell({block.code!r})") + end
        for block in found
    )
    name = f"blocks_of_{re.sub(r'[^a-z]', '_', Path(path).name.lower())}"
    file = Path(folder) / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    module.shell = shell
    sys.modules[name] = module
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.chdir(folder):
        spec.loader.exec_module(module)
    outputs = said.getvalue().split(_PAGE)[:-1]
    assert len(outputs) == len(found)
    return module, outputs


def check(path, folder):
    """Run a document as `run` does, and raise if a block prints other things than it says."""
    module, outputs = run(path, folder)
    for block, output in zip(blocks(path), outputs, strict=True):
        if block.output is not None:
            assert output == block.output, f"{path}: {block.code}printed\n{output}"
    return module, outputs


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(check(Path(sys.argv[1]).resolve(), folder)[1]))
