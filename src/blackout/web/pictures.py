"""Uploaded pictures: looked at before they are decoded, then brought to the shape and the levels of a model."""

import io
import warnings

import numpy
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from blackout.web import limits

_FORMATS = ("PNG", "JPEG", "WEBP")
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"  # as files begin, and as scans do; never inside of a scan
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


def levels(data: bytes, shape: tuple[int, ...], largest: int | None) -> NDArray[numpy.int64]:
    """The central part of a picture in the proportions of `shape`, resized to it, as levels 0, ..., largest."""
    channels, height, width = shape
    picture = _decode(data)
    if picture.has_transparency_data:  # what is transparent is dark
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "black"), picture)
    picture = picture.convert("L" if channels == 1 else "RGB")
    fitted = numpy.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR), numpy.float64)
    scaled = numpy.rint(fitted * (255 if largest is None else largest) / 255).astype(numpy.int64)
    return scaled[None] if channels == 1 else scaled.transpose(2, 0, 1)


def _decode(data: bytes) -> Image.Image:
    """A whole picture the right way up. Its header is read first: a small file may hold a huge picture."""
    if not data:
        raise ValueError("the file is empty")
    if data.startswith(_JPEG) and data.count(_SCAN) > limits.SCANS:
        raise ValueError(f"the picture has too many scans; at most {limits.SCANS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"the picture has too many pixels; at most {limits.PIXELS:,} are read") from None
    except UnidentifiedImageError:
        raise ValueError("the file is no picture that is read here: PNG, JPEG or WebP") from None
    except Exception as error:  # a decoder raises whatever the format at hand leads it to
        raise ValueError(f"the picture cannot be read: {error}") from None
    if picture.width * picture.height > limits.PIXELS:
        size = f"{picture.width} x {picture.height}"
        raise ValueError(f"the picture has too many pixels, {size}; at most {limits.PIXELS:,} are read")
    if getattr(picture, "n_frames", 1) > 1:
        raise ValueError("the picture is animated; one that stands still is needed")
    if picture.mode not in _MODES:
        raise ValueError(f"the picture must have eight bits for each channel, got mode {picture.mode}")
    try:
        picture.load()
        ImageOps.exif_transpose(picture, in_place=True)
    except Exception as error:  # as above
        raise ValueError(f"the picture cannot be read, perhaps it is cut short: {error}") from None
    return picture
