"""The figures of the paper: what is drawn is what the mathematics says."""

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from scipy import stats

import blackout as bo
from blackout.data import make_digits
from blackout.figures.laws import LAW

FEW = bo.ObservationTimes.fisher(60)
DIGITS = make_digits().x[:2].long()


@pytest.fixture(scope="module")
def paths() -> Any:
    return bo.figures.paths(times=FEW, num_paths=4)


def test_heat_maps_are_the_exact_laws(paths: Any) -> None:
    law = numpy.array(LAW) / sum(LAW)
    clock = numpy.concatenate([[0.0], FEW.values.numpy()])
    expected = sum(w * stats.binom.pmf(numpy.arange(9)[:, None], o, numpy.exp(-clock)) for o, w in enumerate(law))
    for axis in paths.axes[2:4]:
        (image,) = axis.get_images()
        assert numpy.allclose(image.get_array().sum(0), 1)
        assert numpy.allclose(image.get_array(), expected, atol=1e-12)
    for axis in paths.axes[:2]:
        (image,) = axis.get_images()
        low, high = image.get_extent()[2:]
        each = (high - low) / len(image.get_array())
        assert 0.94 < float(image.get_array().sum(0).min() * each) <= 1 + 1e-6  # what lies beyond is not seen


def test_paths_are_step_functions_on_the_states(paths: Any) -> None:
    forward, back = paths.axes[2:4]
    for axis in (forward, back):
        for line in axis.get_lines():
            x, y = line.get_data()
            steps = numpy.diff(y)
            assert set(numpy.unique(y)) <= set(range(9))
            assert bool((numpy.diff(x)[steps != 0] == 0).all())  # jumps are upright
            assert set(numpy.unique(steps)) <= ({-1, 0} if axis is forward else {0, 1})
            ends = dict(zip(x[[0, -1]], y[[0, -1]], strict=True))
            assert ends[60.0] == 0
            assert LAW[int(ends[0.0])] > 0
    quantiles = [int(line.get_ydata()[0]) for line in forward.get_lines()]
    assert quantiles == [2, 3, 7, 8]
    assert back.get_xlim()[0] > back.get_xlim()[1]  # time runs back


def test_gaussian_paths_are_not_bound_to_the_states(paths: Any) -> None:
    seen = []
    for axis in paths.axes[:2]:
        walks = [line.get_ydata() for line in axis.get_lines() if len(line.get_ydata()) == 61]
        assert len(walks) == 4
        assert all(-0.5 <= walk[0] <= 8.5 for walk in walks)  # dequantized data, at k = 0
        seen += walks
    values = numpy.concatenate(seen)
    assert values.min() < -0.5
    assert values.max() > 8.5
    assert len(numpy.unique(values)) == values.size


def test_any_process_of_few_states_can_be_drawn() -> None:
    process = bo.BirthDeath(num_states=5, birth=0.2, death=1.0, immigration=0.5)
    figure = bo.figures.paths(process, [1, 0, 0, 0, 2], times=FEW, num_paths=2)
    (image,) = figure.axes[2].get_images()
    assert numpy.allclose(image.get_array()[:, 0], [1 / 3, 0, 0, 0, 2 / 3])
    start = torch.tensor([0, 4])
    expected = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64) @ process.probs(start, FEW.t_end)
    assert numpy.allclose(image.get_array()[:, -1], expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"process": bo.PureDeath()}, "process must have 2 to 64 states to be drawn"),
        ({"process": bo.PureDeath(255)}, "process must have 2 to 64 states to be drawn"),
        ({"law": [1, 2]}, r"law must be 9 numbers, finite and not negative, one for each state, got \[1, 2\]"),
        ({"law": [-1] * 9}, "law must be 9 numbers"),
        ({"law": "humps"}, "law must be 9 numbers, got 'humps'"),
        ({"num_paths": 0}, "num_paths must be at least 1, got 0"),
    ],
)
def test_bad_paths_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bo.figures.paths(**arguments)


def test_observation_times_on_two_axes() -> None:
    figure = bo.figures.observation_times()
    assert [axis.get_yscale() for axis in figure.axes] == ["linear", "log"]
    for axis in figure.axes:
        curve, level = axis.get_lines()
        assert numpy.array_equal(curve.get_ydata(), bo.ObservationTimes.fisher().values)
        assert numpy.array_equal(curve.get_xdata(), numpy.arange(1, 1001))
        assert set(level.get_ydata()) == {math.log(2)}
        assert [text.get_text() for text in axis.texts] == [r"$t = \log 2$"]
    both = bo.figures.observation_times({"a": FEW, "b": bo.ObservationTimes.uniform(9)})
    assert [text.get_text() for text in both.axes[1].get_legend().get_texts()] == ["a", "b"]


@pytest.mark.parametrize(
    ("times", "said"),
    [({}, "times must hold a grid"), ({"a": [1, 2]}, r"times\['a'\] must be ObservationTimes, got list")],
)
def test_bad_times_are_refused(times: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bo.figures.observation_times(times)


def shown(figure: Any, row: int, column: int, columns: int) -> Any:
    (image,) = figure.axes[row * columns + column].get_images()
    return numpy.asarray(image.get_array())


def test_the_forward_process_on_pictures() -> None:
    plain, scaled = (bo.figures.forward(DIGITS, 16, num_frames=5, scaled=s) for s in (False, True))
    assert [axis.get_title() for axis in plain.axes[:5]] == [f"$k={k}$" for k in (0, 250, 500, 750, 1000)]
    assert plain.axes[12].get_title() == "$t=0.69$"
    for row in range(4):
        assert numpy.allclose(shown(plain, row, 0, 5), DIGITS[row % 2, 0] / 16)
        for column in range(5):
            one, other = shown(plain, row, column, 5), shown(scaled, row, column, 5)
            assert 0 <= one.min() <= one.max() <= 1
            if row >= 2:  # Blackout: whole intensities, none above the picture's own, each stretched to the largest
                assert numpy.allclose(one * 16, (one * 16).round())
                assert bool((one <= shown(plain, row, max(0, column - 1), 5)).all())
                assert numpy.allclose(other, (one - one.min()) / max(1 / 16, one.max() - one.min()))
            else:
                assert (other.min(), other.max()) == (0, 1)
    assert shown(plain, 2, 4, 5).max() == 0
    assert shown(scaled, 2, 4, 5).max() == 0
    assert shown(plain, 0, 4, 5).std() > 0.2


def test_colour_pictures_and_seeds() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    one, same, other = (bo.figures.forward(x, num_frames=3, times=FEW, seed=seed) for seed in (0, 0, 1))
    assert numpy.allclose(shown(one, 0, 0, 3), x[0].movedim(0, -1) / 255)
    assert numpy.array_equal(shown(one, 1, 1, 3), shown(same, 1, 1, 3))
    assert not numpy.array_equal(shown(one, 1, 1, 3), shown(other, 1, 1, 3))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 2, 4, 4, dtype=torch.long), r"images must have shape .* got \(2, 2, 4, 4\)"),
        (torch.zeros(0, 4, 4, dtype=torch.long), r"images must hold a picture at least, got shape \(0, 4, 4\)"),
        (torch.full((1, 4, 4), 300), "images .* 300"),
        (torch.zeros(1, 4, 4), "images"),
    ],
)
def test_what_are_no_pictures_is_refused(x: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bo.figures.forward(x)


def test_the_walk_back_scaled_and_unscaled() -> None:
    trajectory = torch.zeros(7, 2, 1, 3, 3, dtype=torch.long)
    for k in range(3, 7):
        trajectory[k, :, :, 0, 0] = k - 2
    times = bo.ObservationTimes.uniform(6).values
    plain = bo.figures.walk(trajectory, times, 5, 8, frames="steps")
    assert len(plain.axes) == 10  # from the last black picture on
    assert [shown(plain, 0, k, 5)[0, 0] for k in range(5)] == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert [axis.get_title() for axis in plain.axes[:5]] == ["$t=10$", "$t=7.5$", "$t=5$", "$t=2.5$", "$t=0$"]
    scaled = bo.figures.walk(trajectory, times, 5, 8, frames="steps", scaled=True)
    assert [shown(scaled, 1, k, 5).max() for k in range(5)] == [0, 1, 1, 1, 1]
    by_brightness = bo.figures.walk(trajectory, times, 3)
    assert [axis.get_title() for axis in by_brightness.axes[:3]] == ["$t=15$", "$t=5$", "$t=0$"]
    with pytest.raises(ValueError, match="frames must be one of 'brightness', 'steps', got 'all'"):
        bo.figures.walk(trajectory, times, frames="all")
    with pytest.raises(ValueError, match=r"trajectory must have shape .* got \(7, 2, 2, 3, 3\)"):
        bo.figures.walk(trajectory.repeat(1, 1, 2, 1, 1), times)


def test_a_grid_of_samples() -> None:
    x = torch.arange(7).reshape(7, 1, 1, 1).expand(7, 1, 2, 2)
    figure = bo.figures.samples(x, columns=3)
    assert len(figure.axes) == 9
    assert [shown(figure, 0, k, 1).max() * 6 for k in range(7)] == pytest.approx(range(7))
    assert not figure.axes[8].axison
    with pytest.raises(ValueError, match=r"images must hold a picture at least"):
        bo.figures.samples(x[:0])


def test_a_ranking_and_levels() -> None:
    axis = bo.figures.ranking({"a": (3.4, 0.1), "b": (5.5, None)}, xlabel="bits/dim").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axis.texts] == ["3.4", "5.5"]
    with pytest.raises(ValueError, match="values must hold a value"):
        bo.figures.ranking({}, xlabel="x")
    axis = bo.figures.curves({"a": ([1, 2], [3, 4])}, xlabel="x", ylabel="y", levels={"floor": 2}).axes[0]
    assert set(axis.get_lines()[1].get_ydata()) == {2}
    assert axis.texts[0].get_text() == "floor"


@pytest.mark.parametrize("vector", ["svg", "pdf"])
def test_files_are_the_same_bytes_again(vector: str, tmp_path: Path) -> None:
    import matplotlib

    def draw() -> Any:
        return bo.figures.forward(DIGITS[:1], 16, num_frames=3)

    files = [tmp_path / f"one.{vector}", tmp_path / "one.png"]
    assert bo.figures.save(draw, tmp_path / "one", vector) == files
    before = [file.read_bytes() for file in files]
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": None}):
        bo.figures.save(draw, tmp_path / "one", vector)
    assert [file.read_bytes() for file in files] == before
    with pytest.raises(ValueError, match="vector must be one of 'svg', 'pdf', got 'eps'"):
        bo.figures.save(draw, tmp_path / "one", "eps")


def test_no_text_is_smaller_than_seven_points(paths: Any) -> None:
    from matplotlib.text import Text

    for figure in (paths, bo.figures.observation_times(), bo.figures.forward(DIGITS, 16, num_frames=3)):
        assert figure.get_figwidth() <= 7
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 7
