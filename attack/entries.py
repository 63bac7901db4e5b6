"""The public functions and methods of the package, and good arguments for each of them."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch

import blackout as bo
from blackout.network import build

_MAX = 4


@functools.cache
def process(name: str) -> bo.MarkovProcess:
    """A process of each kind, with states 0 to 4."""
    ring = numpy.roll(numpy.eye(5), 1, 1) - numpy.eye(5)
    return {
        "death": lambda: bo.PureDeath(_MAX),
        "unbounded": bo.PureDeath,
        "birth-death": lambda: bo.BirthDeath(_MAX + 1, birth=0.2, death=1.0, immigration=0.5),
        "absorbing": lambda: bo.Absorbing(_MAX + 1),
        "uniform": lambda: bo.Uniform(_MAX + 1, schedule=bo.Schedule.linear(0.1, 1.0)),
        "gaussian": lambda: bo.DiscretizedGaussian(_MAX + 1),
        "halving": lambda: bo.Halving(8),
        "finite": lambda: bo.FiniteState(ring),
        "piecewise": lambda: bo.PiecewiseGenerator([ring, 2 * ring.T], [1.0]),
        "chain": lambda: bo.Chain((ring + 2 * numpy.eye(5)) / 2),
    }[name]()


PROCESSES = (
    "death", "unbounded", "birth-death", "absorbing", "uniform", "gaussian", "halving", "finite", "piecewise", "chain"
)  # fmt: skip


@functools.cache
def times() -> bo.ObservationTimes:
    return bo.ObservationTimes.from_values([1.0, 2.0, 3.0])


def states() -> torch.Tensor:
    return torch.tensor([[0, 1, 2], [3, 3, 1], [2, 0, 0]])


def _mask() -> torch.Tensor:
    return torch.tensor([True, False, False])


@functools.cache
def exact(name: str) -> bo.ExactPosterior:
    return bo.ExactPosterior(process(name), states())


@functools.cache
def trained(name: str, classes: int) -> bo.DiffusionModel:
    made = bo.DiffusionModel.for_data(states(), process(name), num_classes=classes, width=8, blocks=1)
    return made.fit(states(), [0, 1, 1] if classes else None, steps=1, batch_size=2)


def model(name: str = "death", classes: int = 0) -> bo.DiffusionModel:
    """A small model, which a call may change."""
    return copy.deepcopy(trained(name, classes))


@functools.cache
def trained_cells() -> bo.CountModel:
    return bo.CountModel(width=8, blocks=1).fit(states(), steps=1)


Entry = tuple[Callable[..., Any], dict[str, Callable[[], Any]]]


@functools.cache
def entries() -> dict[str, Entry]:
    """Every public function and method: itself, and for each of its arguments what makes a good one."""
    found: dict[str, Entry] = {}
    for part in (_constructors, _process_methods, _time_methods, _sampling, _models, _cells):
        found |= part()
    return found


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _good(**arguments: Any) -> dict[str, Callable[[], Any]]:
    """Plain values stand for themselves, functions make a new value for each call."""
    return {key: value if callable(value) else constant(value) for key, value in arguments.items()}


def _constructors() -> dict[str, Entry]:
    ring = numpy.roll(numpy.eye(5), 1, 1) - numpy.eye(5)
    schedule = bo.Schedule.linear(0.1, 1.0)
    correct = {"corrector_steps": 1, "corrector_size": 0.1}
    return {
        "PureDeath": (bo.PureDeath, _good(max_count=4, schedule=schedule)),
        "BirthDeath": (bo.BirthDeath, _good(num_states=5, birth=0.2, death=1.0, immigration=0.5, schedule=schedule)),
        "FiniteState": (bo.FiniteState, _good(generator=lambda: ring, ordered=False, schedule=schedule)),
        "Absorbing": (bo.Absorbing, _good(num_states=5, mask_state=4, schedule=schedule)),
        "Uniform": (bo.Uniform, _good(num_states=5, schedule=schedule)),
        "DiscretizedGaussian": (
            bo.DiscretizedGaussian, _good(num_states=5, bandwidth=1.0, rate=1.0, terminal_std=2.0, schedule=schedule)
        ),
        "Halving": (bo.Halving, _good(num_states=8, schedule=schedule)),
        "Chain": (bo.Chain, _good(transition=lambda: (ring + 2 * numpy.eye(5)) / 2, ordered=False)),
        "PiecewiseGenerator": (bo.PiecewiseGenerator, _good(generators=lambda: [ring, ring], breaks=lambda: [1.0])),
        "Schedule.constant": (bo.Schedule.constant, _good(rate=1.0)),
        "Schedule.linear": (bo.Schedule.linear, _good(start=0.1, slope=1.0)),
        "Schedule.exponential": (bo.Schedule.exponential, _good(scale=1.0, base=2.0)),
        "Schedule.piecewise": (bo.Schedule.piecewise, _good(rates=lambda: [1.0, 2.0], breaks=lambda: [1.0])),
        "Schedule.from_rate": (bo.Schedule.from_rate, _good(rate=lambda: torch.ones_like, breaks=lambda: [1.0])),
        "BinomialBridge": (bo.BinomialBridge, _good(rounding="nearest", **correct)),
        "PosteriorBridge": (bo.PosteriorBridge, _good(**correct)),
        "MultistepBridge": (bo.MultistepBridge, _good(rule="log", weight=0.5, **correct)),
        "TauLeaping": (bo.TauLeaping, _good(step="finite", events="poisson", **correct)),
        "Exact": (bo.Exact, _good(piece=1.0, **correct)),
        "Inpainting": (
            bo.Inpainting,
            _good(sampler=bo.TauLeaping, observed=states, mask=_mask, resample=1),
        ),
        "RateLoss": (bo.RateLoss, _good(process=lambda: process("finite"))),
        "ReactionNetwork": (
            bo.ReactionNetwork,
            _good(stoichiometry=lambda: [[-1, 1], [1, -1]], propensities=lambda: [1.0, 1.0], max_count=4),
        ),
        "Exchange": (bo.Exchange, _good(shape=lambda: (2, 2), rate=1.0)),
        "Dimerisation": (bo.Dimerisation, _good(bind=1.0, split=1.0)),
    }  # fmt: skip


def _process_methods() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name in PROCESSES:
        one, x0, xt = process(name), states, torch.zeros_like(states())
        if name == "absorbing":
            xt = torch.full_like(xt, one.mask_state or 0)
        st, source = {"s": 1.0, "t": 2.0}, torch.Generator
        methods = {
            "sample": _good(x0=x0, t=2.0, generator=source),
            "log_prob": _good(xt=xt, x0=x0, t=2.0),
            "probs": _good(x0=x0, t=2.0),
            "forward_rates": _good(x=x0, t=2.0),
            "reverse_rates": _good(x0=x0, xt=xt, t=2.0),
            "score": _good(x0=x0, xt=xt, t=2.0),
            "sample_bridge": _good(x0=x0, xt=x0, **st, generator=source),
            "bridge_log_prob": _good(xs=x0, x0=x0, xt=x0, **st),
            "terminal": _good(shape=lambda: (2, 3), generator=source, device="cpu"),
            "terminal_log_prob": _good(x=x0),
        }
        found |= {f"{name}.{method}": (getattr(one, method), good) for method, good in methods.items()}
        found[f"remaining_tilt {name}"] = (bo.remaining_tilt, _good(process=one, x0=x0, t=3.0))
    return found


def _time_methods() -> dict[str, Entry]:
    death, grid = process("death"), bo.ObservationTimes
    found: dict[str, Entry] = {
        f"ObservationTimes.{name}": (getattr(grid, name), _good(num_steps=5, t_end=5.0))
        for name in ("fisher", "uniform", "survival")
    }
    return found | {
        "ObservationTimes.from_values": (grid.from_values, _good(values=lambda: [1.0, 2.0])),
        "ObservationTimes.equalize": (
            grid.equalize,
            _good(process=death, measure="entropy", num_steps=5, t_end=5.0, x0=lambda: [4], resolution=64)
        ),
        "ObservationTimes.for_process": (grid.for_process, _good(process=death, num_steps=5, t_end=5.0, x0=states)),
        "ObservationTimes.by_rule": (grid.by_rule, _good(rule="length", process=death, num_steps=5, t_end=5.0)),
        "times.subset": (times().subset, _good(num_steps=2)),
        "times.draw": (times().draw, _good(size=2, generator=torch.Generator, device="cpu", stratified=True)),
        "times.runs": (times().runs, _good(number=2, growing=True)),
    }  # fmt: skip


def _sampling() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    y, rates, death = lambda: torch.ones(3, 3), lambda: torch.ones(3, 3, 5), process("death")
    for name in ("InstantaneousLoss", "FiniteTimeLoss", "LikelihoodLoss"):
        found[f"{name}()"] = (getattr(bo, name)().__call__, _good(y=y, x0=states, xt=states, s=1.0, t=2.0))
    jumps = len(process("birth-death").jumps)
    kappa = lambda: torch.ones(3, 3, jumps)  # noqa: E731
    found["RateLoss()"] = (
        bo.RateLoss(process("birth-death")).__call__,
        _good(kappa=kappa, x0=states, xt=states, s=1.0, t=2.0, channel=None)
    )  # fmt: skip
    for sampler, name in (
        (bo.BinomialBridge(), "death"), (bo.PosteriorBridge(), "absorbing"), (bo.TauLeaping(), "birth-death"),
        (bo.Exact(), "death"), (bo.MultistepBridge(), "finite"), (bo.PosteriorBridge(), "chain"),
    ):  # fmt: skip
        good = _good(denoise=lambda name=name: exact(name), process=process(name), times=times, seed=0, start_index=0)
        more = _good(shape=lambda: (2, 3), trajectory=True, batch_size=2, device="cpu", callback=lambda: None)
        title = f"{type(sampler).__name__} {name}"
        found[f"{title}.sample"] = (sampler.sample, good | more)
        found[f"{title}.bound"] = (sampler.bound, good | _good(x0=states, num_steps=None))
    bound = _good(denoise=lambda: exact("death"), process=death, x0=states, num_times=4, seed=0, start_index=0)
    found["evidence_bound"] = (bo.evidence_bound, bound | _good(t_end=3.0, method="monte-carlo", check=True))
    found["ExactPosterior"] = (bo.ExactPosterior, _good(process=death, points=states, weights=lambda: [1, 2, 3]))
    found["ExactPosterior()"] = (exact("death").__call__, _good(xt=states, t=1.0))
    t = lambda: torch.ones(3)  # noqa: E731
    found["MeanPosterior"] = (_rates_of(bo.MeanPosterior), _good(process=death, t=t, y=y))
    found["CategoricalPosterior"] = (
        _rates_of(bo.CategoricalPosterior), _good(process=process("finite"), t=t, u=rates)
    )  # fmt: skip
    found["RatePosterior"] = (
        _rates_of(bo.RatePosterior), _good(process=process("birth-death"), t=t, kappa=kappa)
    )  # fmt: skip
    return found


def _rates_of(kind: Any) -> Callable[..., Any]:
    """A denoiser makes a posterior of states that were checked before it was called."""
    return lambda **arguments: kind(xt=states(), **arguments).checked().rates()


def _models() -> dict[str, Entry]:
    head = build.build_head("auto", states(), process("death"))
    network = build.build_network((3,), head, process("death"), width=8, blocks=1)
    common = _good(seed=0, batch_size=2)
    sample = common | _good(
        num=3, num_steps=2, sampler="posterior", times="length", label=1, guidance=2.0, observed=states, mask=_mask,
        resample=1, start_index=0, trajectory=True, callback=lambda: None,
    )  # fmt: skip
    fit = _good(
        x=states, labels=lambda: [0, 1, 1], class_names=lambda: ["a", "b"], steps=1, batch_size=2, out="run", seed=0,
        learning_rate=1e-3, loss="likelihood", ema=0.9, grad_clip=1.0, precision="float32", init="",
        listener=lambda: None,
    )  # fmt: skip
    return {
        "DiffusionModel": (
            bo.DiffusionModel,
            _good(process=process("death"), times=times, network=lambda: network, head=lambda: head,
                  time_input="logit", shape=lambda: (3,)),
        ),
        "DiffusionModel.for_data": (
            bo.DiffusionModel.for_data,
            _good(
                x=states, process="uniform", times=times, head="auto", preset="tiny", num_classes=2, seed=0,
                time_input="logit", width=8, blocks=1, dropout=0.1, kind="mlp",
            ),
        ),
        "model.fit": (lambda **a: model("death", 2).fit(**a), fit),
        "model.sample": (lambda **a: model("uniform", 2).sample(**a), sample),
        "model.bits_per_dim": (
            lambda **a: model().bits_per_dim(**a),
            common | _good(x=states, num_times=2, bound="steps")
        ),
        "model.fit_times": (lambda **a: model("uniform").fit_times(**a), _good(x=states, seed=0, num_candidates=4)),
        "model.to": (lambda **a: model().to(**a), _good(device="cpu", precision="float32")),
        "model.sampler": (lambda **a: model().sampler(**a), _good(name="bridge", corrector_steps=0)),
        "model.with_sampling": (
            lambda **a: model().with_sampling(**a),
            _good(sampler="bridge", num_steps=10, dropout=False)
        ),
        "model.with_record": (lambda **a: model("death", 2).with_record(**a), _good(class_names=lambda: ("a", "b"))),
        "model.save": (lambda **a: model().save(**a), _good(folder="saved", dtype=lambda: torch.float16)),
        "load": (bo.load, _good(source="seven-segment", device="cpu")),
        "distill": (
            lambda **a: bo.distill(model(), **a),
            _good(x=states, num_steps=2, steps=1, batch_size=2, out=None),
        ),
    }  # fmt: skip


def _cells() -> dict[str, Entry]:
    common = _good(seed=0, batch_size=2, num_steps=2, callback=lambda: None)
    return {
        "CountModel": (bo.CountModel, _good(labels=(), library="generated", width=8, blocks=1, dropout=0.1)),
        "cells.fit": (
            lambda **a: bo.CountModel(width=8, blocks=1).fit(**a),
            _good(source=states, steps=1, out="run", empty="error", batch_size=2, seed=0),
        ),
        "cells.sample": (
            lambda **a: trained_cells().sample(**a),
            common | _good(num=2, label=None, guidance=1.0, library=None, sampler="bridge", times=None, start_index=0),
        ),
        "cells.impute": (
            lambda **a: trained_cells().impute(**a),
            common | _good(source=states, mask=lambda: states() > 0, draws=1, resample=1)
        ),
        "cells.bits_per_dim": (
            lambda **a: trained_cells().bits_per_dim(**a),
            _good(source=states, seed=0, num_times=2, bound="auto", batch_size=2)
        ),
        "cells.save": (lambda **a: trained_cells().save(**a), _good(folder="cells")),
        "CountModel.load": (bo.CountModel.load, _good(folder="cells")),
    }  # fmt: skip
