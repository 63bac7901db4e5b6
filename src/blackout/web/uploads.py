"""Uploaded images: checked before they are decoded, then resized to the shape and the levels of a model."""

import io
import warnings

import numpy
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from blackout.data.decode import channels_first, composite
from blackout.web import limits

_FORMATS = ("PNG", "JPEG", "WEBP")
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"  # the start of a JPEG file and of a scan; cannot occur inside a scan
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


def image_levels(
    data: bytes, shape: tuple[int, ...], max_state: int | None, background: str = "black"
) -> NDArray[numpy.int64]:
    """The centre of an image file, cropped and resized to `shape` (channels, height, width), as 0, ..., max_state."""
    channels, height, width = shape
    image = composite(_decode(data), background).convert("L" if channels == 1 else "RGB")
    fitted = channels_first(ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)).astype(numpy.float64)
    return numpy.rint(fitted * (255 if max_state is None else max_state) / 255).astype(numpy.int64)


def _decode(data: bytes) -> Image.Image:
    """An upright image. Its header is checked first, because a small file may decode to a huge image."""
    if not data:
        raise ValueError("the file is empty")
    if data.startswith(_JPEG) and data.count(_SCAN) > limits.SCANS:
        raise ValueError(f"the image has too many scans, at most {limits.SCANS} are supported")
    pixels = f"at most {limits.PIXELS:,} are supported"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"the image has too many pixels, {pixels}") from None
    except UnidentifiedImageError:
        raise ValueError("the file is not an image in a supported format: PNG, JPEG or WebP") from None
    except Exception as error:  # decoders raise exceptions of many types
        raise ValueError(f"the image cannot be read: {error}") from None
    if image.width * image.height > limits.PIXELS:
        raise ValueError(f"the image has too many pixels, {image.width} x {image.height}, {pixels}")
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError("the image is animated; a still image is required")
    if image.mode not in _MODES:
        raise ValueError(f"the image must have eight bits per channel, got mode {image.mode}")
    try:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # as above
        raise ValueError(f"the image cannot be read, it may be truncated: {error}") from None
    return image
