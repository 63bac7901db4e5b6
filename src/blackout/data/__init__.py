"""Arrays from files: images, counts, label grids, sequences."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.data.alphabet import Alphabet as Alphabet
    from blackout.data.arrays import Dataset as Dataset
    from blackout.data.arrays import from_array as from_array
    from blackout.data.arrays import read_array as read_array
    from blackout.data.celeba import read_celeba as read_celeba
    from blackout.data.cifar import read_cifar10 as read_cifar10
    from blackout.data.datasets import has_files as has_files
    from blackout.data.datasets import open_dataset as open_dataset
    from blackout.data.datasets import splits_of as splits_of
    from blackout.data.download import fetch as fetch
    from blackout.data.images import read_images as read_images
    from blackout.data.mnist import read_mnist as read_mnist
    from blackout.data.processes import read_process as read_process
    from blackout.data.sequences import from_sequences as from_sequences
    from blackout.data.sequences import read_chloroplast as read_chloroplast
    from blackout.data.sequences import read_sequences as read_sequences
    from blackout.data.sequences import read_stdlib as read_stdlib
    from blackout.data.seven_segment import make_seven_segment as make_seven_segment
    from blackout.data.source import Source as Source
    from blackout.data.sparse_rows import SparseRows as SparseRows
    from blackout.data.suffixes import sequence_kind as sequence_kind
    from blackout.data.volumes import read_bentheimer as read_bentheimer
    from blackout.data.volumes import read_volume as read_volume

DATASETS = Registry("data set")
"""Data sets by name. A new one is a module with a `Source`, and one line here."""

DATASETS.add("cifar10", "blackout.data.cifar:CIFAR10", "60,000 colour images, 32x32, ten classes")
DATASETS.add("mnist", "blackout.data.mnist:MNIST", "70,000 handwritten digits, 28x28, 256 grey levels")
DATASETS.add("mnist-binary", "blackout.data.mnist:MNIST_BINARY", "the same, black and white")
DATASETS.add("celeba64", "blackout.data.celeba:CELEBA64", "202,599 faces, cropped and resized to 64x64")
DATASETS.add("bentheimer", "blackout.data.volumes:BENTHEIMER", "slices of a tomogram of sandstone, 64x64: rock or pore")
DATASETS.add("seven-segment", "blackout.data.seven_segment:SEVEN_SEGMENT", "digits of 8x8 pixels, computed, no files")
DATASETS.add("stdlib", "blackout.data.sequences:STDLIB", "source code of the running Python, in characters, no files")
DATASETS.add(
    "chloroplast", "blackout.data.sequences:CHLOROPLAST", "a genome of 128,214 nucleotides, part of the package"
)

__getattr__, _names = exports(__name__)
__all__ = ["DATASETS", *_names]
