"""Images, trajectories, distributions and sample paths: the figures show what the mathematics says."""

from typing import Any

import numpy
import pytest
import torch
from scipy import stats

import blackout as bo
from blackout.figures.distributions import WEIGHTS

FEW = bo.ObservationTimes.fisher(60)
IMAGES = torch.arange(2 * 64).reshape(2, 1, 8, 8) % 17


@pytest.fixture(scope="module")
def paths() -> Any:
    return bo.figures.paths(times=FEW, num_paths=4)


def test_heat_maps_are_the_exact_distributions(paths: Any) -> None:
    probs = numpy.array(WEIGHTS) / sum(WEIGHTS)
    clock = numpy.concatenate([[0.0], FEW.values.numpy()])
    expected = sum(w * stats.binom.pmf(numpy.arange(9)[:, None], o, numpy.exp(-clock)) for o, w in enumerate(probs))
    for axis in paths.axes[2:4]:
        (image,) = axis.get_images()
        assert numpy.allclose(image.get_array().sum(0), 1)
        assert numpy.allclose(image.get_array(), expected, atol=1e-12)
    for axis in paths.axes[:2]:
        (image,) = axis.get_images()
        low, high = image.get_extent()[2:]
        each = (high - low) / len(image.get_array())
        assert 0.94 < float(image.get_array().sum(0).min() * each) <= 1 + 1e-6  # some mass is outside the panel


def test_paths_are_step_functions_on_the_states(paths: Any) -> None:
    forward, reverse = paths.axes[2:4]
    for axis in (forward, reverse):
        for line in axis.get_lines():
            x, y = line.get_data()
            steps = numpy.diff(y)
            assert set(numpy.unique(y)) <= set(range(9))
            assert bool((numpy.diff(x)[steps != 0] == 0).all())  # jumps are vertical
            assert set(numpy.unique(steps)) <= ({-1, 0} if axis is forward else {0, 1})
            ends = dict(zip(x[[0, -1]], y[[0, -1]], strict=True))
            assert ends[60.0] == 0
            assert WEIGHTS[int(ends[0.0])] > 0
    quantiles = [int(line.get_ydata()[0]) for line in forward.get_lines()]
    assert quantiles == [2, 3, 7, 8]
    assert reverse.get_xlim()[0] > reverse.get_xlim()[1]  # time decreases


def test_gaussian_paths_leave_the_states(paths: Any) -> None:
    seen = []
    for axis in paths.axes[:2]:
        lines = [line.get_ydata() for line in axis.get_lines() if len(line.get_ydata()) == 61]
        assert len(lines) == 4
        assert all(-0.5 <= line[0] <= 8.5 for line in lines)  # dequantized data, at k = 0
        seen += lines
    values = numpy.concatenate(seen)
    assert values.min() < -0.5
    assert values.max() > 8.5
    assert len(numpy.unique(values)) == values.size


def test_paths_of_any_process_with_few_states() -> None:
    process = bo.BirthDeath(num_states=5, birth=0.2, death=1.0, immigration=0.5)
    figure = bo.figures.paths(process, [1, 0, 0, 0, 2], times=FEW, num_paths=2)
    (image,) = figure.axes[2].get_images()
    assert numpy.allclose(image.get_array()[:, 0], [1 / 3, 0, 0, 0, 2 / 3])
    start = torch.tensor([0, 4])
    expected = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64) @ process.probs(start, FEW.t_end)
    assert numpy.allclose(image.get_array()[:, -1], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"process": bo.PureDeath()}, "process must have 2 to 64 states to be drawn"),
        ({"process": bo.PureDeath(255)}, "process must have 2 to 64 states to be drawn"),
        ({"weights": [1, 2]}, r"weights must be 9 .* got \[1, 2\]"),
        ({"weights": [-1] * 9}, "weights must be 9 "),
        ({"weights": "modes"}, "weights must be 9 .* got 'modes'"),
        ({"num_paths": 0}, "num_paths must be at least 1, got 0"),
    ],
)
def test_bad_paths_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bo.figures.paths(**arguments)


def shown(figure: Any, row: int, column: int, columns: int) -> Any:
    (image,) = figure.axes[row * columns + column].get_images()
    return numpy.asarray(image.get_array())


def test_forward_process_on_images() -> None:
    plain, scaled = (bo.figures.forward(IMAGES, 16, num_frames=5, scaled=s) for s in (False, True))
    assert [axis.get_title() for axis in plain.axes[:5]] == [f"$k={k}$" for k in (0, 250, 500, 750, 1000)]
    assert plain.axes[12].get_title() == "$t=0.69$"
    for row in range(4):
        assert numpy.allclose(shown(plain, row, 0, 5), IMAGES[row % 2, 0] / 16)
        for column in range(5):
            one, other = shown(plain, row, column, 5), shown(scaled, row, column, 5)
            assert 0 <= one.min() <= one.max() <= 1
            if row >= 2:  # Blackout: decreasing integers, rescaled to the largest
                assert numpy.allclose(one * 16, (one * 16).round())
                assert bool((one <= shown(plain, row, max(0, column - 1), 5)).all())
                assert numpy.allclose(other, (one - one.min()) / max(1 / 16, one.max() - one.min()))
            else:
                assert (other.min(), other.max()) == (0, 1)
    assert shown(plain, 2, 4, 5).max() == 0
    assert shown(scaled, 2, 4, 5).max() == 0
    assert shown(plain, 0, 4, 5).std() > 0.2


def test_colour_images_and_seeds() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    one, same, other = (bo.figures.forward(x, num_frames=3, times=FEW, seed=seed) for seed in (0, 0, 1))
    assert numpy.allclose(shown(one, 0, 0, 3), x[0].movedim(0, -1) / 255)
    assert numpy.array_equal(shown(one, 1, 1, 3), shown(same, 1, 1, 3))
    assert not numpy.array_equal(shown(one, 1, 1, 3), shown(other, 1, 1, 3))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 2, 4, 4, dtype=torch.long), r"images must have shape .* got \(2, 2, 4, 4\)"),
        (torch.zeros(0, 4, 4, dtype=torch.long), r"images must hold at least one image, got shape \(0, 4, 4\)"),
        (torch.full((1, 4, 4), 300), "images .* 300"),
        (torch.zeros(1, 4, 4), "images"),
    ],
)
def test_bad_images_raise(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bo.figures.forward(x)


def test_trajectory_scaled_and_unscaled() -> None:
    trajectory = torch.zeros(7, 2, 1, 3, 3, dtype=torch.long)
    for k in range(3, 7):
        trajectory[k, :, :, 0, 0] = k - 2
    times = bo.ObservationTimes.uniform(6).values
    plain = bo.figures.trajectory(trajectory, times, 5, 8, frames="steps")
    assert len(plain.axes) == 10  # from the last black frame
    assert [shown(plain, 0, k, 5)[0, 0] for k in range(5)] == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert [axis.get_title() for axis in plain.axes[:5]] == ["$t=10$", "$t=7.5$", "$t=5$", "$t=2.5$", "$t=0$"]
    scaled = bo.figures.trajectory(trajectory, times, 5, 8, frames="steps", scaled=True)
    assert [shown(scaled, 1, k, 5).max() for k in range(5)] == [0, 1, 1, 1, 1]
    by_brightness = bo.figures.trajectory(trajectory, times, 3)
    assert [axis.get_title() for axis in by_brightness.axes[:3]] == ["$t=15$", "$t=5$", "$t=0$"]
    with pytest.raises(ValueError, match="frames must be one of 'brightness', 'steps', got 'all'"):
        bo.figures.trajectory(trajectory, times, frames="all")
    with pytest.raises(ValueError, match=r"trajectory must have shape .* got \(7, 2, 2, 3, 3\)"):
        bo.figures.trajectory(trajectory.repeat(1, 1, 2, 1, 1), times)


def test_grid_of_samples() -> None:
    x = torch.arange(7).reshape(7, 1, 1, 1).expand(7, 1, 2, 2)
    figure = bo.figures.samples(x, columns=3)
    assert len(figure.axes) == 9
    assert [shown(figure, 0, k, 1).max() * 6 for k in range(7)] == pytest.approx(range(7))
    assert not figure.axes[8].axison
    with pytest.raises(ValueError, match=r"images must hold at least one image"):
        bo.figures.samples(x[:0])


def test_text_is_at_least_seven_points(paths: Any) -> None:
    from matplotlib.text import Text

    for figure in (paths, bo.figures.observation_times(), bo.figures.forward(IMAGES, 16, num_frames=3)):
        assert figure.get_figwidth() <= 7
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 7


@pytest.mark.parametrize("channels", [1, 3])
def test_many_images_are_one_sheet(channels: int) -> None:
    x = torch.arange(121 * channels * 6).reshape(121, channels, 2, 3) % 17
    figure = bo.figures.samples(x, max_state=16, columns=12)
    (image,) = [image for axis in figure.axes for image in axis.get_images()]
    sheet = numpy.asarray(image.get_array())
    assert sheet.shape[:2] == (11 * 3 - 1, 12 * 4 - 1)
    for k in (0, 11, 12, 120):
        top, left = k // 12 * 3, k % 12 * 4
        shown = sheet[top : top + 2, left : left + 3]
        assert numpy.allclose(shown, (x[k, 0] if channels == 1 else x[k].movedim(0, -1)).numpy() / 16)
    assert numpy.all(sheet[2::3] == 1)
    assert numpy.all(sheet[:, 3::4] == 1)
    assert numpy.all(sheet[-2:, 4:] == 1)  # the last row has one image
