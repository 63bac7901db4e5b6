import io
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from blackout.data import open_dataset
from blackout.io import read_observed
from blackout.model import DiffusionModel
from blackout.recipes import build_model
from blackout.training.config import TrainConfig
from blackout.web.uploads import image_levels
from pages import LocalServer


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def encode(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A few bytes with the header of a huge image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def scans(count: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    data = encode(Image.new("L", (64, 64), 128), "jpeg", progressive=True)
    scan = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + scan * count + data[-2:]


GREY = Image.fromarray(numpy.arange(256, dtype=numpy.uint8).reshape(16, 16))
COLOUR = Image.merge("RGB", [GREY, GREY.transpose(Image.Transpose.ROTATE_90), Image.new("L", (16, 16), 255)])
NOISE = Image.fromarray(numpy.random.default_rng(0).integers(256, size=(100, 100, 3), dtype=numpy.uint8))
FRAMES = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_image_formats(server: LocalServer, kind: str) -> None:
    for model, count, max_state in (("mnist-binary", 784, 1), ("cifar10", 3072, 255)):
        status, answer = server.request("POST", f"/api/upload?model={model}", encode(COLOUR, kind))
        assert status == 200
        assert len(answer["x"]) == count
        assert min(answer["x"]) >= 0
        assert max(answer["x"]) == max_state


def test_levels_are_those_of_the_image() -> None:
    assert numpy.array_equal(image_levels(encode(GREY), (1, 16, 16), 255)[0], numpy.asarray(GREY))
    assert numpy.array_equal(image_levels(encode(GREY), (1, 16, 16), 1)[0], numpy.asarray(GREY) >= 128)
    assert numpy.array_equal(image_levels(encode(GREY), (1, 16, 16), None)[0], numpy.asarray(GREY))
    assert numpy.array_equal(image_levels(encode(COLOUR), (3, 16, 16), 255), numpy.asarray(COLOUR).transpose(2, 0, 1))
    assert numpy.array_equal(image_levels(encode(GREY), (3, 16, 16), 510)[2], 2 * numpy.asarray(GREY).astype(int))


def test_a_progressive_image_is_read() -> None:
    assert numpy.array_equal(image_levels(scans(20), (1, 64, 64), 255), numpy.full((1, 64, 64), 128))


def test_images_are_decoded_one_at_a_time(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes some hundred megabytes while it is decoded."""
    inside, most = [0], [0]

    def slowly(*_: object) -> "numpy.typing.NDArray[numpy.int64]":
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        inside[0] -= 1
        return numpy.zeros((1, 28, 28), numpy.int64)

    monkeypatch.setattr("blackout.web.app.image_levels", slowly)
    with ThreadPoolExecutor(5) as clients:
        answers = list(clients.map(lambda _: server.request("POST", "/api/upload?model=mnist-binary", b"x"), range(5)))
    assert [status for status, _ in answers] == [200] * 5
    assert most == [1]


def test_the_centre_is_cropped() -> None:
    wide = Image.new("L", (30, 10))
    wide.paste(255, (10, 0, 20, 10))
    assert image_levels(encode(wide), (1, 5, 5), 255).min() > 200
    assert not image_levels(encode(wide), (1, 5, 15), 255)[0, :, :4].any()


def test_transparent_pixels_are_black() -> None:
    clear = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    assert not image_levels(encode(clear), (3, 8, 8), 255).any()
    assert not image_levels(encode(clear.convert("LA")), (1, 8, 8), 1).any()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([255, 255, 255])
    assert not image_levels(encode(palette, transparency=0), (1, 8, 8), 1).any()


@pytest.mark.parametrize("background", ["black", "white", "#204060"])
def test_the_background_is_that_of_training_and_of_inpainting(tmp_path: Path, background: str) -> None:
    half = COLOUR.copy()
    half.putalpha(GREY)
    (tmp_path / "half.png").write_bytes(encode(half))
    config = TrainConfig().replace(background=background, preset="tiny", width=16, blocks=1, num_times=4)
    dataset = open_dataset(tmp_path, **config.data.reading())
    model = DiffusionModel.from_config(build_model(config, dataset).config())
    kept = model.record.background
    assert torch.equal(read_observed(tmp_path / "half.png", (3, 16, 16), 255, kept), dataset.x[0])
    assert numpy.array_equal(image_levels(encode(half), (3, 16, 16), 255, kept), dataset.x[0].numpy())


def test_the_orientation_is_read() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # rotate by 90 degrees clockwise
    data = encode(COLOUR, "png", exif=turned)
    upright = COLOUR.transpose(Image.Transpose.ROTATE_270)
    assert numpy.array_equal(image_levels(data, (3, 16, 16), 255), numpy.asarray(upright).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"%PDF-1.7 nonsense", "the file is not an image in a supported format: PNG, JPEG or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "the file is not an image in a supported format"),
        (encode(GREY, "gif"), "the file is not an image in a supported format"),
        (encode(GREY, "tiff"), "the file is not an image in a supported format"),
        (encode(NOISE)[:9000], "the image cannot be read, it may be truncated"),
        (encode(NOISE, "jpeg")[:4000], "the image cannot be read, it may be truncated"),
        (encode(NOISE, "webp")[:4000], "the image cannot be read"),
        (scans(400), "the image has too many scans, at most 300 are supported"),
        (bomb(8000, 5000), "the image has too many pixels, 8000 x 5000, at most 24,000,000 are supported"),
        (bomb(12000, 10000), "the image has too many pixels, at most 24,000,000 are supported"),
        (bomb(65000, 65000), "the image has too many pixels, at most 24,000,000 are supported"),
        (bomb(2**31 - 1, 2**31 - 1), "the image has too many pixels"),
        (encode(FRAMES[0], "webp", save_all=True, append_images=FRAMES[1:]), "the image is animated"),
        (encode(FRAMES[0], "png", save_all=True, append_images=FRAMES[1:]), "the image is animated"),
        (encode(Image.new("I;16", (8, 8))), "the image must have eight bits per channel, got mode I;16"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_invalid_files_are_rejected_in_one_line(server: LocalServer, data: bytes, message: str) -> None:
    status, answer = server.request("POST", "/api/upload?model=mnist-binary", data)
    assert status == 400
    assert answer["error"].startswith(message)
    assert "\n" not in answer["error"]


def test_an_upload_needs_a_listed_model(server: LocalServer) -> None:
    for query in ("", "?model=../secret"):
        status, answer = server.request("POST", f"/api/upload{query}", encode(GREY))
        assert status == 400
        assert answer["error"].startswith("model must be one of mnist-binary, cifar10, ")
