"""Image files as opaque, upright images of eight bits per channel. Pillow is imported when there is one to decode."""

import contextlib
import io
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
CHANGES = {
    "transparent": "with transparency: composited on {background} (--background)",
    "deep": "with 16 bits per channel: scaled to 8",
    "turned": "turned upright, as their EXIF orientation says",
    "frames": "with several frames or pages: the first one is read",
}
"""What may be done to an image beside decoding it, in words."""

_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF")
_GREY, _DEEP = ("1", "L", "LA"), ("I;16", "I;16L", "I;16B")
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
_ORIENTATION = 0x0112  # tag of EXIF; 5 to 8 exchange width and height
_opening = threading.Lock()  # warnings are filtered for all threads at once


class Header(NamedTuple):
    """What is known of an image before it is decoded."""

    grey: bool
    transparent: bool
    size: tuple[int, int]
    """Width and height, upright."""


class Decoded(NamedTuple):
    """An image of mode L or RGB, and what was done to it: keys of `CHANGES`."""

    image: "Image"
    changes: tuple[str, ...]


def read_header(source: str, data: bytes) -> Header:
    """The header of an image file, checked; `source` names it in messages."""
    image = _open(source, data)
    with _damaged(source):
        swap = image.format != "TIFF" and _orientation(image) in (5, 6, 7, 8)  # Pillow turns TIFF itself
        size = (image.height, image.width) if swap else image.size
        return Header(_is_grey(image), image.has_transparency_data, size)


def decode(source: str, data: bytes, background: str = "black") -> Decoded:
    """The image in a file: opaque, on `background`, upright, with eight bits per channel."""
    from PIL import ImageOps

    image = _open(source, data)
    deep = image.mode in _DEEP or (image.format == "PNG" and data[24] == 16)  # of colours Pillow reads the high bytes
    with _damaged(source):
        frames, turned = getattr(image, "n_frames", 1) > 1, _orientation(image) != 1
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    opaque = composite(image, background)
    changes = {"transparent": opaque is not image, "deep": deep, "turned": turned, "frames": frames}
    return Decoded(eight_bits(source, opaque), tuple(name for name, is_so in changes.items() if is_so))


def eight_bits(source: str, image: "Image") -> "Image":
    """An opaque image in mode L or RGB; `source` names it in messages."""
    from PIL import Image

    if image.mode in _DEEP:
        return Image.fromarray(numpy.rint(numpy.asarray(image) / 257).astype(numpy.uint8))
    _check_mode(source, image)
    with _damaged(source):
        return image.convert("L" if _is_grey(image) else "RGB")


def composite(image: "Image", background: str = "black") -> "Image":
    """The image on a background, RGB or, of a grey image on grey, L; the image itself if no pixel is transparent."""
    from PIL import Image

    if not image.has_transparency_data or image.mode in _DEEP:
        return image
    layer = image.convert("RGBA")
    if layer.getchannel("A").getextrema() == (255, 255):
        return image
    colour = background_colour(background)
    mode = "L" if _is_grey(image) and len(set(colour)) == 1 else "RGB"
    return Image.alpha_composite(Image.new("RGBA", image.size, colour), layer).convert(mode)


def channels_first(image: "Image") -> NDArray[numpy.uint8]:
    """The levels of an image in mode L or RGB, shape (1 or 3, height, width)."""
    levels = numpy.array(image)
    return levels[None] if levels.ndim == 2 else levels.transpose(2, 0, 1)


def background_colour(background: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour name of HTML or of #rrggbb."""
    from PIL import ImageColor

    try:
        return ImageColor.getrgb(background)[:3]
    except (AttributeError, TypeError, ValueError):
        wanted = "a colour name, such as white, or #rrggbb"
        raise ValueError(f"background must be {wanted}, got {background!r}") from None


def read_bytes(path: Path) -> bytes:
    """The content of a file; ValueError, in one line, where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None


def crop_square(image: "Image", crop: int, size: int) -> "Image":
    """The central crop x crop pixels, resized bilinearly (with antialiasing) to size x size."""
    from PIL import Image

    left, top = (image.width - crop) // 2, (image.height - crop) // 2
    return image.crop((left, top, left + crop, top + crop)).resize((size, size), Image.Resampling.BILINEAR)


def _open(source: str, data: bytes) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        with _opening, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        most = f"at most {Image.MAX_IMAGE_PIXELS:,} pixels are read: make it smaller first"
        raise ValueError(f"{source}: the image is too large, {most}") from None
    except UnidentifiedImageError:
        raise ValueError(f"{source}: {_what_it_is(data)}; expected an image: {', '.join(_FORMATS)}") from None
    except Exception as error:  # decoders raise many types
        raise ValueError(f"{source}: damaged image: {error}") from None
    _check_mode(source, image)
    return image


def _check_mode(source: str, image: "Image") -> None:
    if image.mode not in (*_GREY, *_DEEP, *_COLOUR):
        advice = "convert it, or save its levels as integers in a .npy file"
        raise ValueError(f"{source}: expected 8 or 16 bits per channel, got mode {image.mode}: {advice}")


@contextlib.contextmanager
def _damaged(source: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # decoders raise many types
        raise ValueError(f"{source}: damaged image: {error}") from None


def _orientation(image: "Image") -> int:
    return int(image.getexif().get(_ORIENTATION, 1))


def _is_grey(image: "Image") -> bool:
    if image.mode != "P":
        return image.mode in (*_GREY, *_DEEP)
    palette = numpy.array(image.getpalette() or [0, 0, 0]).reshape(-1, 3)
    return bool((palette == palette[:, :1]).all())


def _what_it_is(data: bytes) -> str:
    """A file that Pillow cannot read, in words."""
    if not data:
        return "the file is empty"
    try:
        return "the file holds text" if "\0" not in data.decode("utf-8") else "a file of another kind"
    except UnicodeDecodeError:
        return "damaged image, or a file of another kind"
