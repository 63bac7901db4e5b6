"""The figures that `blackout figures` draws: from shipped weights and recorded results, each with its caption."""

from blackout.gallery.catalogue import FIGURES, Drawing, draw
from blackout.gallery.studio import Plate, Studio
from blackout.gallery.write import write

__all__ = ["FIGURES", "Drawing", "Plate", "Studio", "draw", "write"]
