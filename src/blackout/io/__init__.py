"""Models and samples, to files and from files."""

from typing import TYPE_CHECKING

from blackout.lazy import exports

if TYPE_CHECKING:
    from blackout.io.models import load as load
    from blackout.io.models import pretrained as pretrained
    from blackout.io.observed import read_known as read_known
    from blackout.io.observed import read_mask as read_mask
    from blackout.io.samples import checksum as checksum
    from blackout.io.samples import write_samples as write_samples

__getattr__, __all__ = exports(
    __name__,
    {
        "blackout.io.models": ("load", "pretrained"),
        "blackout.io.observed": ("read_known", "read_mask"),
        "blackout.io.samples": ("checksum", "write_samples"),
    },
)
