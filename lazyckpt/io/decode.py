"""`decode_image`, `decode_audio`, `decode_video`: arrays of encoded bytes, for `map`.

Sound and video are PyAV's, whose wheels bring their own FFmpeg. torchcodec's need one of the
system, or CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import brief, checked, index_sequence, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import optional_module

_MODES = ("L", "RGB", "RGBA")


def decode_image(content: bytes, *, mode: str | None = "RGB") -> NDArray[Any]:
    """The image that bytes are, by Pillow, as an array of (height, width, channels).

    Args:
        content: A file's bytes: JPEG, PNG, WebP or whatever else Pillow reads.
        mode: What its pixels become, as Pillow has it: "RGB", "RGBA", or "L" for gray in
            (height, width); None for what they are.

    Raises:
        RecordError: The bytes are no image, or are cut.
        ArgumentError: There is no such mode.
        PipelineError: Pillow is missing.

    >>> import lazyckpt as lz
    >>> from io import BytesIO
    >>> from PIL import Image
    >>> file = BytesIO()
    >>> Image.new("RGB", (3, 2), "red").save(file, "PNG")
    >>> [pixels] = lz.source([file.getvalue()]) | lz.map(lz.io.decode_image)
    >>> pixels.shape, pixels[0, 0].tolist()
    ((2, 3, 3), [255, 0, 0])
    """
    library = optional_module("PIL.Image", "image", "decode_image")
    if mode is not None and mode not in _MODES:
        raise ArgumentError(f"decode_image: mode must be one of {_MODES} or None, got {mode=}")
    with _decoding("image", content), library.open(BytesIO(content)) as image:
        return np.array(image if mode is None else image.convert(mode))


def decode_audio(content: bytes, *, rate: int | None = None) -> tuple[NDArray[Any], int]:
    """The sound that bytes are, by PyAV: samples of (channels, time), and how many a second.

    Args:
        content: A file's bytes: WAV, FLAC, MP3, Ogg, AAC, the first sound of a video.
        rate: How many samples a second they become; None for as many as there are.

    Returns:
        The samples as 32-bit floats, between -1 and 1, and their rate.

    Raises:
        RecordError: The bytes are no sound, or hold none.
        PipelineError: PyAV is missing.

    >>> import io, wave
    >>> import lazyckpt as lz
    >>> file = io.BytesIO()
    >>> with wave.open(file, "wb") as out:
    ...     out.setnchannels(1), out.setsampwidth(2), out.setframerate(8000)
    ...     out.writeframes(b"\\x00\\x40" * 800)
    (None, None, None)
    >>> samples, rate = lz.io.decode_audio(file.getvalue())
    >>> samples.shape, float(samples[0, 0]), rate
    ((1, 800), 0.5, 8000)
    """
    library = optional_module("av", "av", "decode_audio")
    wanted = checked("decode_audio", "rate", rate, optional(positive))
    with _decoding("sound", content), library.open(BytesIO(content)) as container:
        stream = container.streams.audio[0]
        stream.codec_context.thread_count = 1  # the executor's workers share the processors
        resampler = library.AudioResampler(format="fltp", rate=wanted or stream.rate)
        parts = [
            made.to_ndarray()
            for frame in (*container.decode(stream), None)  # the last samples come behind the end
            for made in resampler.resample(frame)
        ]
        return np.concatenate(parts, axis=1), wanted or int(stream.rate)


def decode_video(content: bytes, *, frames: Sequence[int] | None = None) -> NDArray[Any]:
    """The frames of the video that bytes are, by PyAV, as (frames, height, width, RGB).

    It decodes from the first frame to the last that is asked for.

    Args:
        content: A file's bytes: MP4, WebM, Matroska, AVI.
        frames: Numbers of frames, from 0, in any order: `range(0, 64, 4)`; None for all.

    Raises:
        RecordError: The bytes are no video, or have no such frame.
        ArgumentError: A number is negative, or there is none.
        PipelineError: PyAV is missing.

    >>> import av, io
    >>> import lazyckpt as lz
    >>> import numpy as np
    >>> file = io.BytesIO()
    >>> with av.open(file, "w", format="matroska") as out:
    ...     stream = out.add_stream("ffv1", rate=10, width=4, height=2, pix_fmt="bgr0")
    ...     for shade in (0, 100, 200):
    ...         frame = av.VideoFrame.from_ndarray(np.full((2, 4, 3), shade, np.uint8))
    ...         out.mux(stream.encode(frame))
    ...     out.mux(stream.encode())
    >>> lz.io.decode_video(file.getvalue(), frames=[2, 0])[:, 0, 0, 0]
    array([200,   0], dtype=uint8)
    """
    library = optional_module("av", "av", "decode_video")
    numbers = checked("decode_video", "frames", frames, optional(index_sequence))
    if numbers is not None and not len(numbers):
        raise ArgumentError("decode_video: frames must name at least one frame, got none")
    wanted = None if numbers is None else [_frame(number) for number in numbers]
    with _decoding("video", content), library.open(BytesIO(content)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1  # FFmpeg's threads don't survive a fork
        found: dict[int, NDArray[Any]] = {}
        kept = None if wanted is None else {*wanted}
        stop = None if kept is None else max(kept) + 1
        for number, frame in enumerate(islice(container.decode(stream), stop)):
            if kept is None or number in kept:
                found[number] = frame.to_ndarray(format="rgb24", threads=1)
        if kept is not None and (missing := kept - found.keys()):
            raise IndexError(f"it has no frame {min(missing)}")
        return np.stack([found[number] for number in wanted or found])


def _frame(number: Any) -> int:
    """The number of a frame."""
    return int(checked("decode_video", "frames", number, natural))


@contextmanager
def _decoding(what: str, content: bytes) -> Iterator[None]:
    """Errors of a library say what was to be decoded."""
    try:
        yield
    except Exception as error:
        raise RecordError(
            f"no {what}, or it is cut: {len(content):,} bytes, {brief(content[:12])}: {error}"
        ) from error
