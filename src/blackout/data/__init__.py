"""Arrays from files: pictures, counts, label grids."""

from blackout.data.arrays import Dataset, from_array, read_array
from blackout.data.catalogue import NAMES, open_dataset
from blackout.data.celeba import read_celeba
from blackout.data.cifar import read_cifar10
from blackout.data.digits import make_digits
from blackout.data.download import fetch
from blackout.data.mnist import read_mnist
from blackout.data.pictures import read_pictures
from blackout.data.sparse_rows import SparseRows
from blackout.data.volumes import read_bentheimer, read_volume

__all__ = [
    "NAMES",
    "Dataset",
    "SparseRows",
    "fetch",
    "from_array",
    "make_digits",
    "open_dataset",
    "read_array",
    "read_bentheimer",
    "read_celeba",
    "read_cifar10",
    "read_mnist",
    "read_pictures",
    "read_volume",
]
