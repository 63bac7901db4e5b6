import dataclasses
import json
import math
import re
from typing import Any

import numpy
import pytest
import torch
from scipy import linalg, stats

import blackout as bo
from blackout.web import theory as room
from blackout.web.theory import theory

NAMES = ("pure-death", "birth-death", "uniform", "absorbing")
STATES = numpy.arange(21)
LAWS = {
    "gap": [0, 0, 1, 3, 5, 3, 1, 0, 0, 0, 0, 0, 2, 4, 6, 4, 2, 0, 0, 0, 0.5],
    "point": [0.0] * 12 + [0.3] + [0.0] * 8,
    "black": [1.0] + [0.0] * 20,
    "flat": [1] * 21,
    "faint": [1.0] + [0.0] * 19 + [1e-290],
}


def _generator(name: str) -> numpy.ndarray:
    """The rates of each process, written down once more: [i, j] is the rate i -> j."""
    rates = numpy.zeros((21, 21))
    if name in ("pure-death", "birth-death"):
        rates[STATES[1:], STATES[1:] - 1] = STATES[1:]
    if name == "birth-death":
        rates[STATES[:-1], STATES[:-1] + 1] = 6.0
    if name == "uniform":
        rates[:] = 1 / 21
    if name == "absorbing":
        rates[:, 0] = 1.0
    numpy.fill_diagonal(rates, 0.0)
    return rates - numpy.diag(rates.sum(1))


def _law(name: str = "gap") -> numpy.ndarray:
    weights = numpy.array(LAWS[name], dtype=float)
    return weights / weights.sum()


def _numbers(table: list[Any]) -> numpy.ndarray:
    """None becomes NaN."""
    return numpy.array(table, dtype=float)


@pytest.mark.parametrize("law", LAWS)
def test_forward_laws_are_binomial_mixtures(law: str) -> None:
    answer = theory({"weights": LAWS[law], "paths": 0})
    for t, p, forward in zip(answer["times"], answer["survival"], answer["forward"], strict=True):
        assert p == pytest.approx(math.exp(-t), rel=1e-14)
        mixture = _law(law) @ stats.binom.pmf(STATES[None, :], STATES[:, None], p)
        numpy.testing.assert_allclose(forward, mixture, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", NAMES)
def test_forward_laws_are_those_of_the_matrix_exponential(name: str) -> None:
    answer = theory({"weights": LAWS["gap"], "process": name, "paths": 0})
    for k in (0, 1, 17, 40, 63, 80):
        expected = _law() @ linalg.expm(_generator(name) * answer["times"][k])
        numpy.testing.assert_allclose(answer["forward"][k], expected, atol=1e-13)


def test_the_times_are_equally_far_apart_for_a_unit_that_dies() -> None:
    answer = theory({"weights": LAWS["flat"], "paths": 0})
    angles = numpy.arcsin(numpy.sqrt(1 - numpy.array(answer["survival"][:-1])))
    numpy.testing.assert_allclose(numpy.diff(angles), math.pi / 160, rtol=1e-6)
    assert answer["times"][0] == 0.0
    assert answer["times"][-1] == 15.0


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_the_law_taken_back_is_the_law_carried_forward_in_plain_json(name: str, law: str) -> None:
    answer = theory({"weights": LAWS[law], "process": name, "paths": 0})
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    numpy.testing.assert_allclose(answer["reverse"], answer["forward"], atol=1e-12)
    assert answer["gap"] == pytest.approx(numpy.abs(_numbers(answer["reverse"]) - answer["forward"]).max(), abs=1e-18)
    assert answer["gap"] < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_reverse_steps_lead_to_the_law_of_their_posterior_and_copy_nothing(name: str) -> None:
    """From the end of one law, with the posterior of another one, the walk back ends on that other one.

    What is left at t = 15 of the difference is e^{-15}, times the number of units.
    """
    here, other = (
        room._world(room._process(name), torch.tensor(LAWS[law], dtype=torch.float64)) for law in ("flat", "gap")
    )
    mixed = room._reverse(dataclasses.replace(here, posterior=other.posterior))
    assert float((mixed[0] - other.law).abs().max()) < 1e-5
    assert float((mixed[0] - here.law).abs().max()) > 0.05


def test_the_posterior_is_bayes_rule() -> None:
    answer = theory({"weights": LAWS["gap"], "xt": 3, "paths": 0})
    for k in range(1, 81):
        joint = _law() * stats.binom.pmf(3, STATES, answer["survival"][k])
        numpy.testing.assert_allclose(answer["posterior"][k], joint / joint.sum(), atol=1e-12)
    assert answer["posterior"][0] == [float(o == 3) for o in STATES]


@pytest.mark.parametrize("name", NAMES)
def test_rates_and_scores_are_those_of_the_definition(name: str) -> None:
    """κ(m) adds up ν(m' -> m) p(m') / p(m) over m' above, and below; the score has p(m') - p(m) for p(m')."""
    answer = theory({"weights": LAWS["gap"], "process": name, "paths": 0})
    rates = _generator(name)
    above = STATES[:, None] > STATES[None, :]
    for k in (1, 10, 40, 70, 80):
        p = numpy.array(answer["forward"][k])
        with numpy.errstate(divide="ignore", invalid="ignore"):
            ratio = numpy.where(p > 0, p[:, None] / p[None, :], numpy.nan)
        for side, chosen in (("up", above), ("down", above.T)):
            flow = numpy.where(chosen, rates, 0.0)
            expected_score = (flow * (ratio - 1)).sum(0)
            if (name, side) == ("pure-death", "up"):
                expected_score[20] = -21.0  # from 21, which is not on the page but is a state of the process
            numpy.testing.assert_allclose(_numbers(answer["rates"][side][k]), (flow * ratio).sum(0), rtol=1e-8)
            numpy.testing.assert_allclose(_numbers(answer["score"][side][k]), expected_score, rtol=1e-7, atol=1e-7)


def test_reverse_rates_undo_what_the_forward_rates_do() -> None:
    """Eq. (5): births at rate κ change the law by minus what deaths do to it, at every time."""
    answer = theory({"weights": LAWS["flat"], "paths": 0})
    for p, kappa in zip(answer["forward"][1:], answer["rates"]["up"][1:], strict=True):
        births = numpy.array(p) * numpy.array(kappa)
        numpy.testing.assert_allclose(numpy.append(0, births[:-1]) - births, -(p @ _generator("pure-death")), atol=1e-8)


def test_what_the_network_learns_gives_the_rate_of_pure_death() -> None:
    answer = theory({"weights": LAWS["gap"], "paths": 0})
    p = numpy.array(answer["survival"][1:])[:, None]
    y = _numbers(answer["difference"])[1:]
    numpy.testing.assert_allclose(y * p / (1 - p), _numbers(answer["rates"]["up"][1:]), rtol=1e-9, atol=1e-12)
    given = numpy.array([_law() * stats.binom.pmf(m, STATES, answer["survival"][40]) for m in STATES])
    numpy.testing.assert_allclose(y[39], given @ STATES / given.sum(1) - STATES, atol=1e-10)


def test_the_bridge_of_pure_death_is_binomial_and_forgets_its_start_after_the_sight() -> None:
    answer = theory({"weights": LAWS["gap"], "k": 50, "xt": 4, "x0": 15, "paths": 0})
    p = numpy.array(answer["survival"])
    for k, bridge in enumerate(answer["bridge"]):
        if k <= 50:
            r = (p[k] - p[50]) / (1 - p[50])
            expected = stats.binom.pmf(STATES - 4, 11, r)
        else:
            expected = stats.binom.pmf(STATES, 4, p[k] / p[50])
        numpy.testing.assert_allclose(bridge, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES[1:])
def test_bridges_are_bayes_rule_with_matrix_exponentials(name: str) -> None:
    answer = theory({"weights": LAWS["gap"], "process": name, "k": 45, "xt": 0, "x0": 14, "paths": 0})
    times, generator = answer["times"], _generator(name)
    for k in (0, 5, 30, 44, 45, 46, 80):
        if k <= 45:
            joint = linalg.expm(generator * times[k])[14] * linalg.expm(generator * (times[45] - times[k]))[:, 0]
            expected = joint / joint.sum()
        else:
            expected = linalg.expm(generator * (times[k] - times[45]))[0]
        numpy.testing.assert_allclose(answer["bridge"][k], expected, atol=1e-11)


def test_walks_are_born_in_black_and_end_where_the_law_has_weight() -> None:
    answer = theory({"weights": LAWS["gap"], "seed": 3, "paths": 6})
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    paths = numpy.array(answer["paths"])
    assert paths.shape == (6, 41)
    assert answer["path_times"][0] == 0.0
    assert set(answer["path_times"]) <= set(answer["times"])
    assert (paths[:, -1] == 0).all()
    assert (numpy.diff(paths) <= 0).all()
    assert (_law()[paths[:, 0]] > 0).all()
    assert theory({"weights": LAWS["gap"], "seed": 3, "paths": 2})["paths"] == answer["paths"][:2]
    assert theory({"weights": LAWS["gap"], "seed": 4, "paths": 6})["paths"] != answer["paths"]


def test_without_a_sight_the_most_probable_one_is_taken() -> None:
    answer = theory({"weights": LAWS["gap"], "paths": 0})
    assert answer["k"] == 40
    assert answer["xt"] == int(numpy.argmax(answer["forward"][40]))
    assert answer["x0"] == int(numpy.argmax(answer["posterior"][40]))


def test_what_cannot_be_reached_has_no_number() -> None:
    answer = theory({"weights": LAWS["point"], "xt": 5, "paths": 0})
    assert answer["rates"]["up"][0] == [None] * 21
    assert answer["posterior"][0] == [None] * 21
    for name in ("rates", "score"):
        row = answer[name]["up"][40]
        assert [m for m in STATES if row[m] is None] == list(range(13, 21))
    assert [m for m in STATES if answer["difference"][0][m] is not None] == [12]


@pytest.mark.parametrize("name", NAMES)
def test_the_program_gives_the_same_numbers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"weights": LAWS["flat"], "process": name, "k": 30, "xt": 0, "x0": 7, "seed": 5, "paths": 3}
    answer = theory(request)
    made: dict[str, Any] = {}
    exec(compile(answer["code"], "theory.py", "exec"), made)
    assert "differ by" in capsys.readouterr().out
    for field in ("forward", "reverse", "posterior", "difference", "bridge"):
        numpy.testing.assert_allclose(
            made[field].numpy(), _numbers(answer[field]), rtol=1e-9, atol=1e-12, err_msg=field
        )
    for field in ("rates", "score"):
        for side in ("up", "down"):
            table = _numbers(answer[field][side])[1:]
            numpy.testing.assert_allclose(made[f"{field}_{side}"].numpy(), table, rtol=1e-9, atol=1e-9)
    assert made["paths"].tolist() == answer["paths"]
    assert made["times"].values.tolist() == answer["times"][1:]


def test_the_program_without_walks_runs_and_keeps_every_digit_of_the_weights() -> None:
    weights = [0.1 + 0.2] + [1e-7 / 3] * 20
    made: dict[str, Any] = {}
    exec(theory({"weights": weights, "paths": 0})["code"], made)
    assert made["weights"].tolist() == weights
    assert "paths" not in made
    assert isinstance(made["process"], bo.PureDeath)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [1.0] * 20}, "weights must be 21 numbers, one for each state from 0 to 20, got 20 of them"),
        ({"weights": None}, "weights must be 21 numbers, one for each state from 0 to 20, got NoneType"),
        ({"weights": [0.0] * 21}, "weights must have a sum that is positive and finite, got 0.0"),
        ({"weights": [1e308] * 21}, "weights must have a sum that is positive and finite, got inf"),
        ({"weights": [1.0] * 20 + [-1]}, "the weight of state 20 must be at least 0.0, got -1.0"),
        ({"weights": [math.nan] + [1.0] * 20}, "the weight of state 0 must be finite, got nan"),
        ({"weights": [10**400] + [1.0] * 20}, "the weight of state 0 must be a number, got 1000"),
        ({"weights": ["1"] + [1.0] * 20}, "weights must be numbers, got '1' for state 0"),
        ({"weights": [True] + [1.0] * 20}, "weights must be numbers, got True for state 0"),
        ({"process": "diffusion"}, "process must be one of 'pure-death', 'birth-death', 'uniform', 'absorbing', got"),
        ({"process": ["uniform"]}, "process must be one of"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"k": 81}, "k must be at most 80, got 81"),
        ({"k": 4.5}, "k must be an integer, got 4.5"),
        ({"xt": 21}, "xt must be at most 20, got 21"),
        ({"xt": 13}, "xt=13 cannot be reached by t=0.6931 from the states that have weight"),
        ({"xt": 5, "x0": 4}, "xt=5 cannot be reached from x0=4"),
        ({"x0": -1}, "x0 must be at least 0, got -1"),
        ({"xt": 2, "process": "absorbing"}, "xt=2 cannot be reached by t=0.6931 from the states that have weight"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**70}, "seed must be at most 4294967295, got"),
        ({"paths": 13}, "paths must be at most 12, got 13"),
        ({"path": 3}, "request has an unknown field 'path'; it may have weights, process"),
    ],
)
def test_bad_requests_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as refusal:
        theory({"weights": LAWS["point"], **change})
    assert "\n" not in str(refusal.value)


def test_a_request_is_an_object() -> None:
    with pytest.raises(ValueError, match="request must be an object, got list"):
        theory([])  # type: ignore[arg-type]
