"""Models from files, samples to files."""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout.io.animation import write_animation as write_animation
    from blackout.io.models import load as load
    from blackout.io.models import pretrained as pretrained
    from blackout.io.models import pretrained_folder as pretrained_folder
    from blackout.io.models import write_description as write_description
    from blackout.io.observed import read_mask as read_mask
    from blackout.io.observed import read_observed as read_observed
    from blackout.io.samples import checksum as checksum
    from blackout.io.samples import write_samples as write_samples
    from blackout.io.shards import Shards as Shards
    from blackout.io.text import read_gaps as read_gaps
    from blackout.io.text import write_texts as write_texts

__getattr__, __all__ = exports(__name__)
