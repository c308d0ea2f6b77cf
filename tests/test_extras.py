"""A missing optional package is reported with its extra, in words that a shell accepts."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import lazyckpt as lz
from tests.pages import NOTEBOOKS, README, ROOT

PACKAGE = Path(lz.__file__).parent
NAMED = re.compile(r"(pip install \\?\"|`|)lazyckpt\[([\w,]+|\{[^}]+\})\](\\?\"|`|)")
FORMS = {('pip install "', '"'), ('pip install \\"', '\\"'), ("`", "`")}

NEEDS = {
    "lz.jax": "jax",
    "lz.torch": "torch",
    "lz.grain": "grain",
    "lz.lightning": "lightning",
    "lz.accelerate": "accelerate",
    "lz.transformers": "transformers",
    "lz.prometheus": "prometheus",
    "from lazyckpt.testing import strategies": "testing",
    "next(lz.run(lz.source([1]) | lz.map(str), executor=lz.ray(workers=2)))": "ray",
    "next(lz.run(lz.source([1]) | lz.map(lambda n: n), executor=SPAWN))": "processes",
    "lz.progress(lz.source([1]))": "progress",
    "lz.profile(lz.source([1])).plot()": "plot",
    "lz.source([1]).__rich__()": "rich",
    "lz.load('memory://a.json')": "fsspec",
    "lz.io.files('memory://a')": "fsspec",
    "lz.io.files('s3://a/b')": "s3",
    "lz.io.read_parquet(FILE)": "arrow",
    "lz.io.read_arrow(FILE)": "arrow",
    "lz.io.read_array_record(FILE)": "array_record",
    "lz.io.read_tfrecord(FILE)": "tfrecord",
    "lz.io.read_text(FILE + '.zst')": "zstd",
    "lz.io.read_text(FILE + '.gz')": "gzip",
    "lz.io.convert([{'a': 1}], FILE + '.1', format='parquet', rows_per_file=1)": "arrow",
    "lz.io.convert([1], FILE + '.2', format='jsonl.zst', rows_per_file=1)": "zstd",
    "lz.seen(lz.source([1]), 1).to_parquet('a.parquet')": "arrow",
}

TRIAL = """
import json, sys
for name in {packages}:
    sys.modules[name] = None

import lazyckpt as lz

def trials(codes):
    for code in codes:
        try:
            names = {{"SPAWN": lz.processes(2, start_method='spawn'), "FILE": {file!r}}}
            exec(code, {{"lz": lz, **names}})
        except Exception as error:
            yield f"{{type(error).__name__}}: {{error}}"
        else:
            yield "done"

if __name__ == "__main__":
    print(json.dumps([*trials({codes})]))
"""
PACKAGES = [
    *("accelerate", "array_record", "backports.zstd", "cloudpickle", "compression.zstd"),
    *("fsspec", "google_crc32c", "grain", "hypothesis", "indexed_gzip", "jax", "lightning"),
    *("matplotlib", "obstore", "msgspec"),
    *("prometheus_client", "pyarrow"),
    *("ray", "rich", "s3fs", "shtab", "torch", "tqdm", "transformers"),
]


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {*project["optional-dependencies"]}


def misspelt(text: str) -> Iterator[str]:
    """The extras in a text that don't exist, or that a shell wouldn't accept."""
    for found in NAMED.finditer(text):
        names = [] if found[2].startswith("{") else found[2].split(",")
        if (found[1], found[3]) not in FORMS or not {*names} <= extras():
            yield found[0]


def test_extras_are_named_as_a_shell_takes_them() -> None:
    pages = [*PACKAGE.rglob("*.py"), *NOTEBOOKS.rglob("*.md"), *NOTEBOOKS.glob("*.ipynb"), README]
    assert sum(len(NAMED.findall(page.read_text("utf-8"))) for page in pages) > 10
    for page in pages:
        assert [*misspelt(page.read_text("utf-8"))] == [], page.name


@pytest.mark.parametrize(
    "text", ["pip install lazyckpt[rich]", "pip install 'lazyckpt[rich]'", "`lazyckpt[ritch]`"]
)
def test_a_misspelt_extra_is_noticed(text: str) -> None:
    assert [*misspelt(text)]


def test_what_needs_a_package_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"PAR1")
    (tmp_path / "data.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (tmp_path / "data.gz").write_bytes(gzip.compress(bytes(5 << 20)))  # large, for seek points
    script = tmp_path / "trial.py"
    text = TRIAL.format(packages=PACKAGES, file=str(tmp_path / "data"), codes=[*NEEDS])
    script.write_text(text, "utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for (code, extra), said in zip(NEEDS.items(), json.loads(done.stdout), strict=True):
        assert f'pip install "lazyckpt[{extra}]"' in said, (code, said)
