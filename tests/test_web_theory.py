import functools
import json
import math
import re
from typing import Any

import numpy
import pytest
import torch
from scipy import linalg, stats

import blackout as bo
from blackout.web.theory import processes, theory
from blackout.web.theory_tables import tables

NAMES = tuple(processes())
DISTRIBUTIONS = {
    "gap": [0, 0, 1, 3, 5, 3, 1, 0, 0, 0, 0, 0, 2, 4, 6, 4, 2, 0, 0, 0, 0.5],
    "point": [0.0] * 12 + [0.3] + [0.0] * 8,
    "zero": [1.0] + [0.0] * 20,
    "flat": [1] * 21,
    "faint": [1.0] + [0.0] * 19 + [1e-290],
}
STATES = numpy.arange(21)


@functools.cache
def answer(weights: str = "gap", process: str = "pure-death", **values: Any) -> dict[str, Any]:
    return theory({"weights": DISTRIBUTIONS[weights], "process": process, "trajectories": 0, **values})


def generator(name: str) -> numpy.ndarray:
    """[i, j] is the rate i -> j of a process, from its rates and jumps."""
    process = processes()[name]
    size = process.num_states
    matrix, rates = numpy.zeros((size, size)), process.forward_rates(torch.arange(size)).numpy()
    for i in range(size):
        for r, jump in enumerate(process.jumps):
            if 0 <= i + jump < size:
                matrix[i, i + jump] += rates[i, r]
    numpy.fill_diagonal(matrix, 0.0)
    return matrix - numpy.diag(matrix.sum(1))


def initial(name: str = "gap", size: int = 21) -> numpy.ndarray:
    weights = numpy.pad(numpy.array(DISTRIBUTIONS[name], dtype=float), (0, size - 21))
    return weights / weights.sum()


def numbers(table: list[Any]) -> numpy.ndarray:
    """None becomes NaN."""
    return numpy.array(table, dtype=float)


def test_the_processes_are_those_of_the_registry_in_continuous_time() -> None:
    assert {"pure-death", "birth-death", "uniform", "absorbing"} <= set(NAMES)
    assert "chain" not in NAMES
    assert set(answer()["processes"]) == set(NAMES)


@pytest.mark.parametrize("weights", DISTRIBUTIONS)
def test_forward_distributions_of_pure_death_are_binomial_mixtures(weights: str) -> None:
    data = answer(weights)
    for t, forward in zip(data["times"], data["forward"], strict=True):
        mixture = initial(weights) @ stats.binom.pmf(STATES[None, :], STATES[:, None], math.exp(-t))
        numpy.testing.assert_allclose(forward, mixture, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", NAMES)
def test_forward_distributions_are_matrix_exponentials(name: str) -> None:
    data, matrix = answer(process=name), generator(name)
    for k in (0, 1, 17, 40, 63, 80):
        expected = initial(size=len(matrix)) @ linalg.expm(matrix * data["times"][k])
        numpy.testing.assert_allclose(data["forward"][k], expected, atol=1e-12)


def test_times_are_equally_spaced_in_the_length_of_one_unit() -> None:
    times = numpy.array(answer()["times"])
    angles = numpy.arcsin(numpy.sqrt(-numpy.expm1(-times[:-1])))
    numpy.testing.assert_allclose(numpy.diff(angles), math.pi / 160, rtol=1e-6)
    assert (times[0], times[-1]) == (0.0, 15.0)


@pytest.mark.parametrize("weights", DISTRIBUTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_reverse_and_forward_distributions_are_equal_and_json(name: str, weights: str) -> None:
    data = answer(weights, name)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    difference = numpy.abs(numbers(data["reverse"]) - data["forward"]).max()
    assert data["max_difference"] == pytest.approx(difference, abs=1e-18)
    assert difference < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_reverse_steps_use_the_posterior_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the posterior of another distribution, the reverse process ends in that other distribution.

    What is left at the last time of the difference is e^{-15} times a polynomial in time and the number of units.
    """
    gap = torch.tensor(DISTRIBUTIONS["gap"], dtype=torch.float64)
    exact = bo.ExactPosterior
    monkeypatch.setattr(bo, "ExactPosterior", lambda process, points, weights: exact(process, points, gap), False)
    mixed = tables(processes()[name], torch.ones(21, dtype=torch.float64))
    expected = initial(size=len(mixed["initial"]))
    assert float((mixed["reverse"][0] - torch.from_numpy(expected)).abs().max()) < 1e-4
    assert float((mixed["reverse"][0] - mixed["initial"]).abs().max()) > 0.05


def test_the_posterior_is_bayes_rule() -> None:
    data = answer(xt=3)
    for k in range(1, 81):
        joint = initial() * stats.binom.pmf(3, STATES, math.exp(-data["times"][k]))
        numpy.testing.assert_allclose(data["posterior"][k], joint / joint.sum(), atol=1e-12)
    assert data["posterior"][0] == [float(o == 3) for o in STATES]


@pytest.mark.parametrize("name", NAMES)
def test_rates_and_scores_follow_from_their_definition(name: str) -> None:
    """κ(m) is the sum of ν(m' -> m) p(m') / p(m) over m' above, or below; the score has p(m') - p(m) for p(m')."""
    data, rates = answer(process=name), generator(name)
    states = numpy.arange(len(rates))
    above = states[:, None] > states[None, :]
    for k in (1, 10, 40, 70, 80):
        p = numpy.array(data["forward"][k])
        with numpy.errstate(divide="ignore", invalid="ignore"):
            ratio = numpy.where(p > 0, p[:, None] / p[None, :], numpy.nan)
        for side, chosen in (("up", above), ("down", above.T)):
            flow = numpy.where(chosen, rates, 0.0)
            expected_score = (flow * (ratio - 1)).sum(0)
            numpy.testing.assert_allclose(numbers(data["rates"][side][k]), (flow * ratio).sum(0), rtol=1e-7)
            numpy.testing.assert_allclose(numbers(data["score"][side][k]), expected_score, rtol=1e-6, atol=1e-6)


def test_reverse_rates_undo_the_forward_rates() -> None:
    """Eq. (5): births at rate κ change the distribution by minus what deaths do to it, at every time."""
    data = answer("flat")
    for p, kappa in zip(data["forward"][1:], data["rates"]["up"][1:], strict=True):
        births = numpy.array(p) * numpy.array(kappa)
        numpy.testing.assert_allclose(numpy.append(0, births[:-1]) - births, -(p @ generator("pure-death")), atol=1e-8)


def test_the_target_of_the_network_gives_the_rates_of_pure_death() -> None:
    data = answer()
    assert data["mean_suffices"]
    assert not answer(process="uniform")["mean_suffices"]
    p = numpy.exp(-numpy.array(data["times"][1:]))[:, None]
    y = numbers(data["difference"])[1:]
    numpy.testing.assert_allclose(y * p / (1 - p), numbers(data["rates"]["up"][1:]), rtol=1e-9, atol=1e-12)
    joint = numpy.array([initial() * stats.binom.pmf(m, STATES, float(p[39, 0])) for m in STATES])
    numpy.testing.assert_allclose(y[39], joint @ STATES / joint.sum(1) - STATES, atol=1e-10)


def test_the_bridge_of_pure_death_is_binomial() -> None:
    data = answer(k=50, xt=4, x0=15)
    p = numpy.exp(-numpy.array(data["times"]))
    for k, bridge in enumerate(data["bridge"]):
        if k <= 50:
            expected = stats.binom.pmf(STATES - 4, 11, (p[k] - p[50]) / (1 - p[50]))
        else:
            expected = stats.binom.pmf(STATES, 4, p[k] / p[50])
        numpy.testing.assert_allclose(bridge, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_bridges_follow_from_matrix_exponentials(name: str) -> None:
    data, matrix = answer(process=name, k=45, x0=14), generator(name)
    times, xt = data["times"], data["xt"]
    for k in (0, 5, 30, 44, 45, 46, 80):
        if k <= 45:
            joint = linalg.expm(matrix * times[k])[14] * linalg.expm(matrix * (times[45] - times[k]))[:, xt]
            expected = joint / joint.sum()
        else:
            expected = linalg.expm(matrix * (times[k] - times[45]))[xt]
        numpy.testing.assert_allclose(data["bridge"][k], expected, atol=1e-10)


def test_trajectories_start_at_zero_and_end_where_the_distribution_has_weight() -> None:
    data = answer(seed=3, trajectories=6)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    x = numpy.array(data["trajectories"])
    assert x.shape == (6, 41)
    assert data["trajectory_times"][0] == 0.0
    assert set(data["trajectory_times"]) <= set(data["times"])
    assert (x[:, -1] == 0).all()
    assert (numpy.diff(x) <= 0).all()
    assert (initial()[x[:, 0]] > 0).all()
    assert answer(seed=3, trajectories=2)["trajectories"] == data["trajectories"][:2]
    assert answer(seed=4, trajectories=6)["trajectories"] != data["trajectories"]


def test_the_most_probable_states_are_the_default() -> None:
    data = answer()
    assert data["k"] == 40
    assert data["xt"] == int(numpy.argmax(data["forward"][40]))
    assert data["x0"] == int(numpy.argmax(data["posterior"][40]))


def test_unreachable_states_have_no_values() -> None:
    data = answer("point", xt=5)
    assert data["rates"]["up"][0] == [None] * 21
    assert data["posterior"][0] == [None] * 21
    for name in ("rates", "score"):
        row = data[name]["up"][40]
        assert [m for m in STATES if row[m] is None] == list(range(13, 21))
    assert [m for m in STATES if data["difference"][0][m] is not None] == [12]


@pytest.mark.parametrize("name", NAMES)
def test_the_code_reproduces_the_numbers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = answer("flat", name, k=30, x0=7, seed=5, trajectories=3)
    made: dict[str, Any] = {"__name__": "script"}
    exec(compile(data["code"], "theory.py", "exec"), made)
    assert "differ by" in capsys.readouterr().out
    result = made["result"]
    for field in ("times", "forward", "reverse"):
        assert result[field].tolist() == data[field], field
    for field, values in (("posterior", made["posterior"]), ("difference", result["difference"])):
        table = numbers(data[field])
        defined = ~numpy.isnan(table)  # at time zero the mask cannot be reached
        assert numpy.array_equal(values.numpy()[defined], table[defined]), field
    for field in ("rates", "score"):
        for side in ("up", "down"):
            assert result[f"{field}_{side}"].tolist() == data[field][side][1:]
    assert made["bridge_probs"].tolist() == data["bridge"]
    assert (made["times"].tolist(), made["paths"].tolist()) == (data["trajectory_times"], data["trajectories"])


def test_the_code_keeps_every_digit_of_the_weights_and_uses_public_names() -> None:
    weights = [0.1 + 0.2] + [1e-7 / 3] * 20
    code = theory({"weights": weights, "trajectories": 0})["code"]
    made: dict[str, Any] = {"__name__": "script"}
    exec(code, made)
    assert made["weights"].tolist() == weights
    imports = [line for line in code.splitlines() if "import" in line.split()]
    assert [line for line in imports if "blackout" in line] == [
        "import blackout as bo", "from blackout.process import PROCESSES",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [1.0] * 20}, "weights must be 21 numbers, one for each state from 0 to 20, got 20 of them"),
        ({"weights": None}, "weights must be 21 numbers, one for each state from 0 to 20, got NoneType"),
        ({"weights": [0.0] * 21}, "weights must have a positive and finite sum, got 0.0"),
        ({"weights": [1e308] * 21}, "weights must have a positive and finite sum, got inf"),
        ({"weights": [1.0] * 20 + [-1]}, "the weight of state 20 must be at least 0.0, got -1.0"),
        ({"weights": [math.nan] + [1.0] * 20}, "the weight of state 0 must be finite, got nan"),
        ({"weights": [10**400] + [1.0] * 20}, "the weight of state 0 must be a number, got 1000"),
        ({"weights": ["1"] + [1.0] * 20}, "weights must be numbers, got '1' for state 0"),
        ({"weights": [True] + [1.0] * 20}, "weights must be numbers, got True for state 0"),
        ({"process": "diffusion"}, "process must be one of 'pure-death'"),
        ({"process": ["uniform"]}, "process must be one of"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"k": 81}, "k must be at most 80, got 81"),
        ({"k": 4.5}, "k must be an integer, got 4.5"),
        ({"xt": 21}, "xt must be at most 20, got 21"),
        ({"xt": 13}, "xt=13 cannot be reached by t=0.6931 from states with positive weight"),
        ({"xt": 5, "x0": 4}, "xt=5 cannot be reached from x0=4"),
        ({"x0": -1}, "x0 must be at least 0, got -1"),
        ({"xt": 2, "process": "absorbing"}, "xt=2 cannot be reached by t=0.6931 from states with positive weight"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**70}, "seed must be at most 4294967295, got"),
        ({"trajectories": 13}, "trajectories must be at most 12, got 13"),
        ({"path": 3}, "unknown field 'path'; a request has weights, process"),
    ],
)
def test_bad_requests_are_rejected_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as error:
        theory({"weights": DISTRIBUTIONS["point"], **change})
    assert "\n" not in str(error.value)


def test_a_request_is_an_object() -> None:
    with pytest.raises(ValueError, match="request must be an object, got list"):
        theory([])  # type: ignore[arg-type]
