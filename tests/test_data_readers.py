import gzip
import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from torch import Tensor

from blackout.data import open_dataset, read_celeba, read_images, read_mnist


def _idx(array: numpy.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _digit_images(n: int = 20) -> tuple[numpy.ndarray, numpy.ndarray]:
    random = numpy.random.default_rng(n)
    return random.integers(0, 256, (n, 28, 28), numpy.uint8), (numpy.arange(n) % 10).astype(numpy.uint8)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    images, labels = _digit_images()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(_idx(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(_idx(labels))
    images, labels = _digit_images(7)
    (tmp_path / "t10k-images.idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images)))
    (tmp_path / "t10k-labels.idx1-ubyte.gz").write_bytes(gzip.compress(_idx(labels)))
    return tmp_path


def test_mnist(mnist: Path) -> None:
    for split, n in (("train", 20), ("test", 7)):
        data = open_dataset(mnist, split=split)
        images, labels = _digit_images(n)
        assert (data.name, data.max_state, data.num_classes) == ("mnist", 255, 10)
        assert data.class_names == tuple("0123456789")
        assert torch.equal(data.x, torch.from_numpy(images)[:, None])
        assert torch.equal(data.labels, torch.from_numpy(labels).long())
        binary = open_dataset("mnist-binary", split=split, folder=mnist)
        assert (binary.name, binary.max_state) == ("mnist-binary", 1)
        assert torch.equal(binary.x, (data.x >= 128).to(torch.uint8))


def test_mnist_is_resized_as_by_pillow(mnist: Path) -> None:
    images, _ = _digit_images()
    for size in (32, 14):
        data = read_mnist(mnist, size=size)
        expected = [Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR) for image in images]
        expected = torch.from_numpy(numpy.stack([numpy.asarray(image) for image in expected]))[:, None]
        # Pillow rounds weights to fixed point, and once more between the two directions.
        assert int((data.x.int() - expected.int()).abs().max()) <= 1
        assert float((data.x != expected).double().mean()) < 0.2
        assert torch.equal(read_mnist(mnist, size=size, binarize=100.5).x, (data.x > 100).to(torch.uint8))


def test_resized_mnist_is_binarised_before_it_is_rounded(mnist: Path) -> None:
    """15/16 of 136 is 127.5, which is not above the threshold; rounded first, it would be 128."""
    images = numpy.zeros((20, 28, 28), numpy.uint8)
    images[:, :, 7] = 136
    (mnist / "train-images-idx3-ubyte").write_bytes(_idx(images))
    assert int(read_mnist(mnist, size=32).x[:, :, :, 8].min()) == 128
    assert int(open_dataset("mnist-binary", folder=mnist, size=32).x.max()) == 0


def test_damaged_mnist(mnist: Path) -> None:
    images, labels = _digit_images()
    for name, content, message in [
        ("train-images-idx3-ubyte", _idx(images)[:-1], r"expected 15696 bytes for shape \(20, 28, 28\), got 15695"),
        ("train-images-idx3-ubyte", _idx(labels), "expected an idx file that begins with 00000803, got 00000801"),
        ("train-images-idx3-ubyte", b"", "expected an idx file that begins with 00000803, got "),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\xff\xff\xff\xff" + b"\xff" * 8, r"expected \d{20,} bytes"),
        ("train-images-idx3-ubyte", _idx(images[:, :27]), "expected images of 28x28, got 27x28"),
        ("train-labels-idx1-ubyte", _idx(labels[:9]), "expected 20 labels, got 9"),
        ("train-labels-idx1-ubyte", _idx(labels + 1), "expected labels from 0 to 9, got 10"),
    ]:
        fine = (mnist / name).read_bytes()
        (mnist / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: {message}"):
            read_mnist(mnist)
        (mnist / name).write_bytes(fine)
    packed = mnist / "t10k-images.idx3-ubyte.gz"
    for content in (packed.read_bytes()[:-500], b"not gzip"):
        packed.write_bytes(content)
        with pytest.raises(ValueError, match=r"t10k-images\.idx3-ubyte\.gz: damaged gzip file"):
            read_mnist(mnist, split="test")
    packed.unlink()
    with pytest.raises(ValueError, match="expected t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte"):
        read_mnist(mnist, split="test")
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        read_mnist(mnist, size=0)


def _png(pixels: numpy.ndarray, mode: str | None = None, form: str = "png") -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(out, form, **({"lossless": True} if form == "webp" else {}))
    return out.getvalue()


def _write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


RANDOM = numpy.random.default_rng(1)
GREY = RANDOM.integers(0, 256, (3, 5, 4), numpy.uint8)
COLOUR = RANDOM.integers(0, 256, (3, 5, 4, 3), numpy.uint8)


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    files = {"b.png": _png(GREY[1]), "a.bmp": _png(GREY[0], form="bmp"), "sub/c.PNG": _png(GREY[2]), "note.txt": b""}
    data = open_dataset(_write(tmp_path / "grey", files))
    assert (data.name, data.max_state, data.labels) == ("grey", 255, None)
    assert torch.equal(data.x, torch.from_numpy(GREY)[:, None])


def test_one_colour_image_makes_three_channels(tmp_path: Path) -> None:
    files = {"a.png": _png(GREY[0]), "b.webp": _png(COLOUR[1], form="webp"), "c.png": _png(COLOUR[2], "RGBA")}
    data = open_dataset(_write(tmp_path, files))
    assert data.x.shape == (3, 3, 5, 4)
    assert torch.equal(data.x[0], torch.from_numpy(GREY[0]).expand(3, 5, 4))
    assert torch.equal(data.x[1:], torch.from_numpy(COLOUR[1:]).permute(0, 3, 1, 2))


def test_sub_folders_are_classes_and_splits(tmp_path: Path) -> None:
    names = ["train/dog/1.png", "train/cat/deep/2.png", "train/cat/1.png", "test/dog/1.png"]
    folder = _write(tmp_path, {name: _png(GREY[k % 3]) for k, name in enumerate(names)})
    data = open_dataset(folder)
    assert (data.labels.tolist(), data.num_classes, data.class_names) == ([0, 0, 1], 2, ("cat", "dog"))
    assert len(open_dataset(folder, split="test")) == 1
    assert open_dataset(folder / "train").num_classes == 2
    with pytest.raises(ValueError, match=r"split must be 'train', because .* has no splits, got 'valid'"):
        open_dataset(folder, split="valid")


def test_a_table_gives_the_classes(tmp_path: Path) -> None:
    folder = _write(tmp_path, {name: _png(GREY[k]) for k, name in enumerate(("a.png", "deep/b.png", "c.png"))})
    table = "\ufefflabel,file,note\nemu,c.png,\n cat ,a.png,x\nemu,./deep/b.png,\n"
    (folder / "labels.csv").write_text(table, encoding="utf-8")
    data = open_dataset(folder)
    assert data.labels is not None
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 1], ("cat", "emu"))  # a.png, c.png, deep/b.png
    for text, message in (
        ("name,label\n", r"labels\.csv: expected the columns file and label in its first line, got name, label"),
        ("", "expected the columns file and label in its first line, got none"),
        ("file,label\na.png,cat\n", r"expected a label for every image, got none for c\.png"),
        ("file,label\na.png,cat\nc.png,\ndeep/b.png,emu\n", r"expected a label for every image, got none for c\.png"),
        (table + "emu,d.png,\n", r"expected images below .*, but there is no d\.png"),
    ):
        (folder / "labels.csv").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            open_dataset(folder)
    (folder / "labels.csv").write_bytes(b"file,label\n\xff,a\n")
    with pytest.raises(ValueError, match=r"labels\.csv: expected a table in UTF-8: "):
        open_dataset(folder)


def test_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    inner = numpy.zeros((10, 20), numpy.uint8)
    inner[:, 5:15] = 200
    folder = _write(tmp_path, {"a.png": _png(inner), "b.png": _png(inner.T)})
    sizes = "images of 2 sizes, from 10x20 to 20x10 pixels"
    with pytest.raises(ValueError, match=rf"{sizes}, .*\(--image-size 32\) crops each image to its central square"):
        open_dataset(folder)
    data = open_dataset(folder, size=8)
    assert data.x.shape == (2, 1, 8, 8)
    assert data.x.unique().tolist() == [200]
    assert data.notes == (f"{sizes}: cropped to the central square and resized to 8x8",)


def test_transparent_pixels_show_the_background(tmp_path: Path) -> None:
    """Against the definition: alpha c + (1 - alpha) b for each channel."""
    alpha = RANDOM.integers(0, 256, (5, 4, 1), numpy.uint8)
    emoji, opaque = numpy.concatenate([COLOUR[0], alpha], -1), numpy.dstack([COLOUR[1], numpy.full((5, 4), 255, "u1")])
    folder = _write(tmp_path, {"a.png": _png(emoji), "b.webp": _png(emoji, form="webp"), "c.png": _png(opaque)})
    for background, behind in (("black", (0, 0, 0)), ("white", (255, 255, 255)), ("#102030", (16, 32, 48))):
        data = read_images(folder, background=background)
        expected = alpha / 255 * COLOUR[0] + (1 - alpha / 255) * numpy.array(behind)
        assert float((data.x[0].permute(1, 2, 0) - torch.from_numpy(expected)).abs().max()) <= 1
        assert torch.equal(data.x[2].permute(1, 2, 0), torch.from_numpy(COLOUR[1]))
        assert data.notes == (f"2 images with transparency: composited on {background} (--background)",)
    with pytest.raises(ValueError, match="background must be a colour name, such as white, or #rrggbb, got 'blck'"):
        read_images(folder, background="blck")


def test_grey_images_on_a_coloured_background_have_three_channels(tmp_path: Path) -> None:
    clear = numpy.dstack([GREY[0], numpy.zeros((5, 4), numpy.uint8)])
    folder = _write(tmp_path, {"a.png": _png(clear), "b.png": _png(GREY[1])})
    assert read_images(folder, background="grey").x[:, :, 0, 0].tolist() == [[128], [GREY[1, 0, 0]]]
    assert read_images(folder, background="#102030").x[0, :, 0, 0].tolist() == [16, 32, 48]


def test_other_kinds_of_images_are_read_and_counted(tmp_path: Path) -> None:
    deep = GREY[0].astype(numpy.uint16) * 257
    frames = [Image.fromarray(frame) for frame in GREY[:2]]
    for name, pixels, note in (
        ("deep.png", deep, "1 image with 16 bits per channel: scaled to 8"),
        ("deep.tif", deep, "1 image with 16 bits per channel: scaled to 8"),
        ("one.gif", GREY[0], ""),
        ("one.tiff", GREY[0], ""),
    ):
        Image.fromarray(pixels).save(tmp_path / name)
        data = read_images(tmp_path)
        assert torch.equal(data.x[0, 0], torch.from_numpy(GREY[0])), name
        assert "".join(data.notes) == note
        (tmp_path / name).unlink()
    frames[0].save(tmp_path / "two.gif", save_all=True, append_images=frames[1:])
    palette = Image.fromarray(COLOUR[0]).quantize(4)
    palette.save(tmp_path / "palette.png")
    _write(tmp_path, {"a.txt": b"", "b.svg": b"", "c.svg": b"", ".hidden/x.png": b"", "._x.png": b""})
    data = read_images(tmp_path)
    assert torch.equal(data.x[0].permute(1, 2, 0), torch.from_numpy(numpy.asarray(palette.convert("RGB")).copy()))
    assert torch.equal(data.x[1], torch.from_numpy(GREY[0]).expand(3, -1, -1))
    assert data.notes == (
        "1 image with several frames or pages: the first one is read",
        "3 files skipped, not of a type that is read: 2 .svg, 1 .txt",
    )


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees clockwise
    for name in ("a.png", "b.webp", "c.tif"):
        Image.fromarray(GREY[0]).save(tmp_path / name, exif=exif, **({"lossless": True} if "webp" in name else {}))
    data = read_images(tmp_path)
    assert torch.equal(data.x[:, 0], torch.from_numpy(numpy.rot90(GREY[0], -1).copy()).expand(3, -1, -1))
    assert data.notes == ("3 images turned upright, as their EXIF orientation says",)


def test_rejected_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected images \(\.png, .*\), got none"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match="none: no such folder"):
        read_images(tmp_path / "none")
    real = io.BytesIO()
    Image.fromarray(numpy.zeros((3, 3), numpy.float32)).save(real, "tiff")
    bomb = _png(GREY[0])[:16] + struct.pack(">II", 30_000, 30_000) + _png(GREY[0])[24:]
    bomb = bomb[:29] + struct.pack(">I", zlib.crc32(bomb[12:29])) + bomb[33:]
    for name, content, message in [
        ("bad.jpg", b"\xff\xd8\xff\xe0 not much of an image", "damaged image"),
        ("cut.png", _png(RANDOM.integers(0, 256, (64, 64), numpy.uint8))[:2000], "damaged image"),
        ("real.tif", real.getvalue(), "expected 8 or 16 bits per channel, got mode F: convert it, or save its levels"),
        ("text.png", b"not an image\n", "the file holds text; expected an image: PNG"),
        ("zero.png", b"", "the file is empty; expected an image"),
        ("script.png", b"%!PS-Adobe-3.0 EPSF-3.0\n", "the file holds text; expected an image: PNG"),
        ("bomb.png", bomb, "the image is too large, at most 89,478,485 pixels are read: make it smaller first"),
    ]:
        _write(tmp_path, {name: content})
        with pytest.raises(ValueError, match=f"{name}: {message}"):
            open_dataset(tmp_path)
        (tmp_path / name).unlink()


def _face(brightness: int) -> bytes:
    """Only the central 140 x 140 pixels are lit. Pillow goes by the content, so that a .jpg can be lossless."""
    pixels = numpy.zeros((218, 178, 3), numpy.uint8)
    pixels[39:179, 19:159] = brightness
    return _png(pixels)


FACES = {f"{k:06d}.jpg": _face(10 * k) for k in range(1, 7)}
PARTITION = "".join(f"{k:06d}.jpg {split}\n" for k, split in enumerate([0, 0, 1, 2, 0, 2], 1)).encode()


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"img_align_celeba/{name}", content)
    return out.getvalue()


def _levels(x: Tensor) -> list[int]:
    assert x.shape[1:] == (3, 64, 64)
    assert bool((x == x[:, :1, :1, :1]).all())
    return [int(level) for level in x[:, 0, 0, 0]]


@pytest.mark.parametrize("layout", ["beside", "inside", "renamed", "zip", "zip inside", "official"])
def test_celeba_in_every_layout(layout: str, tmp_path: Path) -> None:
    folder = {f"img_align_celeba/{name}": content for name, content in FACES.items()}
    files = {
        "beside": folder | {"list_eval_partition.txt": PARTITION},
        "inside": folder | {"img_align_celeba/list_eval_partition.txt": PARTITION},
        "renamed": FACES | {"list_eval_partition.txt": PARTITION},
        "zip": {"img_align_celeba.zip": _zip(FACES), "list_eval_partition.txt": PARTITION},
        "zip inside": {"img_align_celeba.zip": _zip(FACES | {"list_eval_partition.txt": PARTITION})},
        "official": {"Img/img_align_celeba.zip": _zip(FACES), "Eval/list_eval_partition.txt": PARTITION},
    }
    _write(tmp_path, files[layout])
    assert _levels(open_dataset("celeba64", folder=tmp_path).x) == [10, 20, 50]
    assert _levels(open_dataset(tmp_path, split="valid").x) == [30]
    assert _levels(read_celeba(tmp_path, split="test").x) == [40, 60]
    assert sorted(_levels(read_celeba(tmp_path, split="all").x)) == [10, 20, 30, 40, 50, 60]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"000002.jpg": b"\xff\xd8 broken"}, "000002.jpg: damaged image"),
        ({"000002.jpg": _png(GREY[0])}, "000002.jpg: expected 178x218 pixels, got 4x5"),
        ({"000002.jpg": None}, "expected 3 images for the split 'train'; 1 are missing, 000002.jpg first"),
        ({"list_eval_partition.txt": None}, "expected list_eval_partition.txt in it or beside it"),
        ({"list_eval_partition.txt": b"000001.jpg 2\n"}, "expected some .*list_eval_partition.txt names none"),
        ({"list_eval_partition.txt": b"\n000001.jpg 7\n"}, "expected a file name and 0, 1 or 2 in line 2, got '000001"),
    ],
)
def test_damaged_celeba(changes: dict[str, bytes | None], message: str, tmp_path: Path) -> None:
    files = {**FACES, "list_eval_partition.txt": PARTITION, **changes}
    files = {name: content for name, content in files.items() if content is not None}
    _write(tmp_path / "img_align_celeba", files)
    _write(tmp_path, {"img_align_celeba.zip": _zip(files)})
    for name in ("img_align_celeba", "img_align_celeba.zip"):
        with pytest.raises(ValueError, match=message):
            read_celeba(tmp_path / name)


def test_damaged_celeba_archives(tmp_path: Path) -> None:
    intact = _zip(FACES | {"list_eval_partition.txt": PARTITION})
    flipped = bytearray(intact)
    flipped[len(intact) // 100] ^= 255  # within the first image: its checksum no longer matches
    for content in (intact[: len(intact) // 2], bytes(flipped), b""):
        _write(tmp_path, {"img_align_celeba.zip": content})
        with pytest.raises(ValueError, match=r"img_align_celeba\.zip: damaged \.zip archive"):
            read_celeba(tmp_path)
    with pytest.raises(ValueError, match=r"expected img_align_celeba/ or img_align_celeba.zip here"):
        read_celeba(tmp_path / "none")


def test_rejected_sources_and_options(mnist: Path) -> None:
    with pytest.raises(ValueError, match=r"source must be one of cifar10, .* or an existing path, got 'imagenet'"):
        open_dataset("imagenet")
    with pytest.raises(ValueError, match="colour is not an option of mnist, whose options are split, binarize, size"):
        open_dataset("mnist", folder=mnist, colour=True)
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'all'"):
        open_dataset("seven-segment", split="all")
    _write(mnist, {"data_batch_1.bin": b""})
    with pytest.raises(ValueError, match="holds cifar10 and mnist; name one of them, with folder="):
        open_dataset(mnist)
    with pytest.raises(ValueError, match=r"expected a folder of images, \.npy, \.npz"):
        open_dataset(mnist / "train-images-idx3-ubyte")
    _write(mnist, {"cells.h5ad": b""})
    with pytest.raises(ValueError, match=r"; single cells: `blackout cells train .*cells\.h5ad`"):
        open_dataset(mnist / "cells.h5ad")
