"""What the models that ship generate."""

from blackout import figures
from blackout.figures.context import Plate, Studio

_ROWS, _FRAMES, _COLUMNS = 4, 11, 8
_SCALES = {
    False: "One colour scale for all.",
    True: "Each picture has a colour scale of its own, so that the first births are seen.",
}


def generation(studio: Studio, name: str = "cifar10", scaled: bool = False) -> Plate:
    walks = studio.walks(name)
    rows = walks.trajectory[:, :_ROWS]
    return Plate(
        lambda: figures.walk(rows, walks.times.values, _FRAMES, walks.max_state, scaled=scaled, frames="steps"),
        f"From black to picture: the first {rows.shape[1]} walks of the model `{name}`, one a row, in "
        f"{len(walks.times)} steps of the binomial bridge. Time runs back from left to "
        f"right, from just before the first birth; earlier steps, all black, are left out. {_SCALES[scaled]}",
    )


def generation_scaled(studio: Studio) -> Plate:
    return generation(studio, scaled=True)


def generation_digits(studio: Studio) -> Plate:
    return generation(studio, "mnist-binary")


def samples(studio: Studio, name: str = "cifar10") -> Plate:
    walks = studio.walks(name)
    return Plate(
        lambda: figures.samples(walks.samples, walks.max_state, columns=_COLUMNS),
        f"The first {len(walks.samples)} samples of the model `{name}`, none left out: {len(walks.times)} steps of the "
        f"binomial bridge, seed {studio.seed}.",
    )


def samples_digits(studio: Studio) -> Plate:
    return samples(studio, "mnist-binary")
