"""Secrets: they are masked, and appear in nothing that is shown or saved."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.secrets import is_secret, masked
from lazyckpt.core.stages import stateless

SECRET = "Zq7Zq7Zq7Zq7Zq7Zq7Zq7Zq7"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://key:{}@bucket/x", "s3://***@bucket/x"),
        ("postgresql://u:{}p@ss@host/db", "postgresql://***@host/db"),
        ("https://{}@host/x", "https://***@host/x"),
        ("PosixPath('https:/u:{}@h/x')", "PosixPath('https:/***@h/x')"),
        ("'s3://a:{}@b' or 's3://c:{}@d'", "'s3://***@b' or 's3://***@d'"),
        (
            "https://h/x?X-Amz-Signature={}(1)&X-Amz-Credential={}/2&x=1",
            "https://h/x?X-Amz-Signature=***&X-Amz-Credential=***&x=1",
        ),
        ("https://h/x?sv=1&sig={}%2B", "https://h/x?sv=1&sig=***"),
        ("https://h/x?AWSAccessKeyId={}", "https://h/x?AWSAccessKeyId=***"),
        ("{{'token': '{}', 'n': 1}}", "{'token': '***', 'n': 1}"),
        ('{{"a": "{{\\"password\\": \\"{}\\"}}"}}', '{"a": "{\\"password\\": \\"***\\"}"}'),
        ("hf_token='{}', api_key=b\"{}'\"", "hf_token='***', api_key=b\"***\""),
        ("auth=('me', '{}')", "auth=***"),
        ("Authorization: Bearer {}", "Authorization: Bearer ***"),
        ("AWS_SECRET_ACCESS_KEY={}/b+c", "AWS_SECRET_ACCESS_KEY=***"),
        ("password='{}", "password='***'"),
        ("password == '{}'", "password == '***'"),
        ("see hf_{}, ghp_{}, sk-proj-{}!", "see ***, ***, ***!"),
        ("AKIA" + "ABCDEFGH12345678", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----.", "***."),
    ],
)  # fmt: skip
def test_secrets_are_masked_once(text: str, expected: str) -> None:
    found = masked(text.format(SECRET, SECRET, SECRET) if "{}" in text else text)
    assert found == expected
    assert masked(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "source(range(0, 9)) | shuffle(seed=0)",
        "http://localhost:8080/a@b",
        "abfss://container@account.dfs.core.windows.net/x",
        "ssh://git@host/x",
        "f(eos_token='</s>', pad_token='x', max_tokens=5, tokens=[1], token=None)",
        "unexpected token: 'foo'",
        "login(password: str, secret: str | None = None)",
        "sort_key='a', key=abs, secretary='b'",
        "a task-oriented-dialogue-corpus-of-2020, hf_hub, risk-averse",
        "https://host/x?page=2&sort=up",
    ],
)
def test_nothing_else_is(text: str) -> None:
    assert masked(text) == text


def test_a_name_hides_texts_alone() -> None:
    for value in ("x", b"x", ["x"], ("me", "x"), {"a": "x"}):
        assert is_secret("api_key", value)
        assert not is_secret("key", value)
    for value in (None, True, 5, [1, 2], len, lz.source(["ab"])):
        assert not is_secret("token", value)
    assert not is_secret(5, "x")


def test_long_texts_are_cut() -> None:
    assert len(masked("key=" * (1 << 18))) < 1 << 17


# --- pipelines ---


@lz.combinator(keeps_items=True, registered=False)
def logged_in(upstream: Machine[Any], url: Any = "", *, api_key: Any = None, **options: Any) -> Any:
    """The items."""
    return stateless(upstream, rate=Rate(), flow=upstream.flow)


def second(_: Any, item: Any) -> Any:
    return item


FORMS = {
    "user": "s3://user:{}@bucket/a",
    "http": "https://{}@host/a",
    "query": "https://host/a?X-Amz-Signature={}&b=1",
    "known": "hf_{}",
    "bearer": "Bearer {}",
    "long": "https://host/" + "a" * 60 + "?sig={}&" + "b" * 60,
}
texts = st.sampled_from([*FORMS.values()]).map(lambda form: form.format(SECRET))
inside = st.one_of(
    texts,
    texts.map(lambda text: [text]),
    texts.map(lambda text: {"url": text}),
    st.just({"password": SECRET}),
    st.just({"a": [{"token": SECRET}]}),
    texts.map(PurePosixPath),
)
secret = st.one_of(st.just(SECRET), st.just(SECRET.encode()), st.just(("me", SECRET)))
stages = st.one_of(
    st.builds(lambda url: logged_in(url), inside),
    st.builds(lambda key: logged_in(api_key=key), secret),
    st.builds(lambda key: logged_in(hf_token=key, options={"n": 1}), secret),
    st.builds(lambda url: logged_in(option=url), inside),
    st.builds(lambda url: lz.map(second, url), inside),
)


@st.composite
def pipelines(draw: st.DrawFn, depth: int = 1) -> lz.Pipeline[Any]:
    found: Any = lz.source(range(9)) | lz.shuffle(seed=0)
    if depth and draw(st.booleans()):
        found = lz.concat(found, draw(pipelines(depth=depth - 1)))
    if draw(st.booleans()):
        found = lz.source(draw(texts.map(lambda text: [text] * 3)))
    for stage in draw(st.lists(stages, max_size=3)):
        found = found | stage
    return found


def failing(item: Any) -> Any:
    raise ValueError(f"no login at s3://me:{SECRET}@bucket with api_key={SECRET!r}")


def told(pipeline: lz.Pipeline[Any], other: lz.Pipeline[Any]) -> Iterator[str]:
    """All that is shown or saved of a pipeline."""
    yield repr(pipeline)
    yield pipeline._repr_html_()
    run = lz.run(pipeline)
    for _ in islice(run, 2):
        pass
    yield repr(run)
    yield run._repr_html_()
    states = run.state, lz.init(pipeline)
    for state in states:
        yield state.to_json()
        yield repr(state)
        yield state._repr_html_()
    yield str(lz.diff(*states))
    yield lz.tree(pipeline) + lz.tree(run)
    yield f"{lz.head(pipeline, 2)}{lz.head(pipeline | lz.map(failing), 2)}"
    yield lz.head(pipeline, 2)._repr_html_()
    yield str(lz.diff(*states)._repr_html_())
    for executor in (None, lz.threads(2)):
        yield str(lz.explain(pipeline, executor))
    for call in (
        lambda: lz.run(other, run.state),
        lambda: lz.rebase(run.state, other),
        lambda: len(pipeline | lz.filter(bool)),
        lambda: pipeline | lz.batch(pipeline),
        lambda: next(lz.run(pipeline | lz.map(failing))),
    ):
        try:
            call()
        except Exception as error:
            if isinstance(error, lz.PipelineError):
                yield str(error)
            yield "\n".join(getattr(error, "__notes__", ()))
    with lz.run(pipeline | lz.map(failing), on_error="skip") as skipping:
        with suppress(StopIteration):
            next(skipping)
        assert skipping.skipped
        yield "".join(skipping.skipped.first)
        yield skipping.state.to_json()


@given(pipelines(), pipelines())
def test_nothing_that_is_shown_or_saved_has_a_secret(
    pipeline: lz.Pipeline[Any], other: lz.Pipeline[Any]
) -> None:
    for text in told(pipeline, other):
        assert SECRET[:5] not in text


@given(pipelines())
def test_a_pipeline_keeps_its_secrets(pipeline: lz.Pipeline[Any]) -> None:
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_another_secret_makes_no_other_pipeline() -> None:
    def made(secret: str, url: str = "bucket") -> lz.Pipeline[Any]:
        stage = logged_in(f"s3://me:{secret}@{url}", api_key=secret, options={"api_key": secret})
        return lz.source(range(9)) | stage

    one, other = made("one"), made("another")
    assert one != other
    assert lz.init(one) == lz.init(other)
    assert list(lz.run(other, lz.state_at(one, 4))) == [4, 5, 6, 7, 8]
    with pytest.raises(lz.StateMismatch, match=r'url="s3://\*\*\*@bucket".* -> .*@elsewhere'):
        lz.run(made("one", "elsewhere"), lz.init(one))


def test_what_functions_are_called_with_and_executors_have_none() -> None:
    pipeline = lz.source(["a"]) | lz.map(max, SECRET)
    assert SECRET not in repr(pipeline.entries) + lz.init(pipeline).to_json()
    assert SECRET not in repr(lz.ray(workers=1, runtime_env={"env_vars": {"HF_TOKEN": SECRET}}))


def test_errors_have_none() -> None:
    for kind in (lz.PipelineError, lz.ArgumentError, lz.errors.StorageError, lz.InvalidState):
        error = kind(f"s3://me:{SECRET}@bucket")
        assert error.args == ("s3://***@bucket",)
        assert SECRET not in "".join(traceback.format_exception(error))
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_worker_s_traceback_has_none() -> None:
    pipeline = lz.source(range(3)) | lz.map(failing)
    with (
        lz.run(pipeline, executor=lz.processes(1)) as run,
        pytest.raises(ValueError, match="no login") as caught,
    ):
        next(run)
    notes = "\n".join(caught.value.__notes__)
    assert "Traceback" in notes
    assert SECRET not in notes
