"""`ray` as a value, which needs no Ray."""

from __future__ import annotations

import pickle

import pytest

import lazyckpt as lz


def test_the_value() -> None:
    executor = lz.ray(workers=2, num_cpus=1, resources={"loader": 1})
    assert repr(executor) == "ray(workers=2, num_cpus=1, resources={'loader': 1})"
    assert executor == lz.ray(workers=2, num_cpus=1, resources={"loader": 1})
    assert executor != lz.ray(workers=2)
    assert pickle.loads(pickle.dumps(executor)) == executor


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lz.ArgumentError, match="workers must be an int >= 1"):
        lz.ray(workers=0)
    with pytest.raises(lz.ArgumentError, match="workers"):
        lz.ray()  # type: ignore[call-arg]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(lz.ArgumentError, match=r"lazyckpt\[ray\]"):
        lz.run(lz.source([1]), executor=lz.ray(workers=1))
