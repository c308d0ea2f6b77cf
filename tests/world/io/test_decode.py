"""Images, sound and video out of bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import lazyckpt as lz
from lazyckpt.testing import equal

FEW = settings(max_examples=max(5, settings.default.max_examples // 5))


def png(pixels: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def sound(samples: NDArray[Any], rate: int, form: str = "flac", codec: str = "flac") -> bytes:
    """A file of 16-bit samples of (channels, time)."""
    out = io.BytesIO()
    with av.open(out, "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.layout = "mono" if len(samples) == 1 else "stereo"
        packed = np.ascontiguousarray(samples.T).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(packed, format="s16", layout=stream.layout.name)
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


def video(shades: list[int]) -> bytes:
    """A video without loss, of one shade a frame."""
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as container:
        stream: Any = container.add_stream("ffv1", rate=10, width=4, height=2, pix_fmt="bgr0")
        for shade in shades:
            frame = av.VideoFrame.from_ndarray(np.full((2, 4, 3), shade, np.uint8))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


@FEW
@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([(), (3,), (4,)]), st.randoms())
def test_images_come_back(height: int, width: int, channels: Any, random: Any) -> None:
    size = height * width * (channels or (1,))[0]
    pixels = np.frombuffer(random.randbytes(size), np.uint8).reshape(height, width, *channels)
    assert equal(lz.io.decode_image(png(pixels), mode=None), pixels)
    assert lz.io.decode_image(png(pixels)).shape == (height, width, 3)
    assert lz.io.decode_image(png(pixels), mode="L").shape == (height, width)


@FEW
@given(st.sampled_from([1, 2]), st.integers(16, 3000), st.sampled_from([8000, 44100]))
def test_sound_without_loss_comes_back(channels: int, size: int, rate: int) -> None:
    samples = np.arange(channels * size).astype(np.int16).reshape(channels, size) * 7
    found, said = lz.io.decode_audio(sound(samples, rate))
    assert equal(found, (samples / 32768).astype(np.float32))
    assert said == rate
    wav, _ = lz.io.decode_audio(sound(samples, rate, "wav", "pcm_s16le"))
    assert equal(wav, found)


def test_sound_is_resampled() -> None:
    samples = (np.sin(np.arange(8000) / 8) * 9999).astype(np.int16)[None]
    found, rate = lz.io.decode_audio(sound(samples, 8000), rate=16000)
    assert (rate, found.dtype) == (16000, np.float32)
    assert abs(found.shape[1] - 16000) < 100
    assert np.abs(found[0, 1000:9000:2] - samples[0, 500:4500] / 32768).max() < 0.01


@FEW
@given(st.lists(st.integers(0, 255), min_size=1, max_size=8), st.data())
def test_frames_of_a_video(shades: list[int], data: st.DataObject) -> None:
    content = video(shades)
    expected = np.array(shades, np.uint8)
    found = lz.io.decode_video(content)
    assert found.shape == (len(shades), 2, 4, 3)
    assert equal(found[:, 1, 3, 2], expected)
    numbers = data.draw(st.lists(st.integers(0, len(shades) - 1), min_size=1, max_size=5))
    assert equal(lz.io.decode_video(content, frames=numbers)[:, 0, 0, 0], expected[numbers])


DECODERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "image": (lz.io.decode_image, png(np.zeros((20, 20, 3), np.uint8))),
    "sound": (lz.io.decode_audio, sound(np.zeros((1, 9000), np.int16), 8000)),
    "video": (lz.io.decode_video, video([1, 2, 3])),
}


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_none_is_left_out_where_asked(name: str) -> None:
    decode, good = DECODERS[name]
    for bad in (b"", b"nothing at all", good[:20]):
        with pytest.raises(lz.io.RecordError, match=f"no {name}, or it is cut: {len(bad)} bytes"):
            decode(bad)
    pipeline = lz.source([good, b"nothing", good]) | lz.map(decode)
    with lz.run(pipeline, on_error="skip") as run:
        assert len(list(run)) == 2


def test_what_has_no_sound_or_frame_is_named() -> None:
    with pytest.raises(lz.io.RecordError, match="no sound, or it is cut: "):
        lz.io.decode_audio(video([1]))
    with pytest.raises(lz.io.RecordError, match="it has no frame 3"):
        lz.io.decode_video(video([1, 2]), frames=[0, 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lz.io.decode_image(b"", mode="HSV"), "mode must be one of .* got mode='HSV'"),
        (lambda: lz.io.decode_audio(b"", rate=0), "rate must be an int >= 1"),
        (lambda: lz.io.decode_video(b"", frames=[-1]), "frames must be an int >= 0"),
        (lambda: lz.io.decode_video(b"", frames=[]), "frames must name at least one frame"),
        (lambda: lz.io.decode_video(b"", frames=1), "frames must be a range, list, tuple or"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("executor", [lz.threads(2), lz.processes(2)], ids=str)
def test_workers_decode(executor: Any) -> None:
    contents = [video([n, n + 1]) for n in range(6)]
    decode = partial(lz.io.decode_video, frames=[1])
    assert decode(contents[0]).shape == (1, 2, 4, 3)  # here, before workers are forked
    pipeline = lz.source(contents) | lz.map(decode) | lz.map(lambda frames: int(frames[0, 0, 0, 0]))
    with lz.run(pipeline, executor=executor) as run:
        assert list(run) == [1, 2, 3, 4, 5, 6]
