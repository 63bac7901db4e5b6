"""Choices made for the user: the observation times of a sample, and the sampler."""

from dataclasses import dataclass

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.sampling import SAMPLERS
from blackout.sampling.base import Sampler, check_sampler
from blackout.times import FittedTimes, ObservationTimes

_FEW = 64  # steps, up to which multistep bridges and fitted times are the defaults: docs/samplers.md#few-steps
_MANY = 128  # states from which images are sampled by the multistep binomial bridge: it helps with 256, and not with 17

Times = ObservationTimes | str | None
"""Given times, the name of a rule in `TIME_RULES`, or None: the default."""


@dataclass(frozen=True, kw_only=True)
class SamplingDefaults:
    """Default sampler, number of steps and dropout of a model; saved with it.

    Examples
    --------
    >>> SamplingDefaults(num_steps=1000, dropout=True)
    SamplingDefaults(sampler='auto', num_steps=1000, dropout=True)
    """

    sampler: str = "auto"
    """A name of `SAMPLERS`; auto: by process and head."""
    num_steps: int = 250
    """Number of steps, at most as many as the model has times."""
    dropout: bool = False
    """Whether dropout stays on, as in the authors' code."""

    def __post_init__(self) -> None:
        validate.choice("sampler", self.sampler, ("auto", *SAMPLERS))
        validate.integer("num_steps", self.num_steps, 1)


def steps_and_times(
    defaults: SamplingDefaults, own: ObservationTimes, by_index: bool, num_steps: int | str | None, times: Times
) -> tuple[int, Times]:
    """The number of steps ("auto": the default, None: all) and the times in effect; `by_index` allows `own` alone."""
    if by_index and times is not None:
        raise ValueError("times must be None for a network that is conditioned on the index of its own times")
    automatic = isinstance(num_steps, str) and num_steps == "auto"
    steps = defaults.num_steps if automatic else len(own) if num_steps is None else num_steps
    if not isinstance(times, ObservationTimes | str | None):
        raise ValueError(f"times must be ObservationTimes or the name of a rule, got {validate.short(times)}")
    return validate.integer("num_steps", steps, 1), own if by_index else times


def sampling_rule(
    own: ObservationTimes, process: MarkovProcess, num_steps: int, times: Times, fitted: FittedTimes | None = None
) -> str:
    """The name of the rule that `sampling_times` follows; empty for given times and for `own`.

    Few steps are placed at the fitted times of a model that has them. Otherwise, fewer steps than a grid of equal
    Fisher information has are placed by `length`: docs/samplers.md#observation-times.
    """
    if times is not None:
        return times if isinstance(times, str) else ""
    if fitted is not None and num_steps <= _FEW and num_steps < len(own):
        return "fitted"
    return "length" if num_steps < len(own) and own.is_fisher(process) else ""


def sampling_times(
    own: ObservationTimes, process: MarkovProcess, num_steps: int, times: Times, fitted: FittedTimes | None = None
) -> ObservationTimes:
    """`num_steps` of the given times, of those of a rule, or of `own`; at most as many as there are.

    The rule "fitted" needs the `fitted` times of a model.
    """
    steps = min(validate.integer("num_steps", num_steps, 1), len(own))
    if isinstance(times, ObservationTimes):
        return times.subset(min(steps, len(times)))
    rule = sampling_rule(own, process, steps, times, fitted)
    if rule == "fitted" and fitted is not None:
        return fitted.choose(process, steps)
    grid = ObservationTimes.by_rule(rule, process, len(own), own.t_end) if rule else own
    return grid.subset(steps)


def default_sampler(
    process: MarkovProcess, answers: str, num_steps: int | None = None, shape: tuple[int, ...] | None = None
) -> str:
    """The name of the default sampler for a number of steps (None: many) and data points of a shape.

    A bridge, with memory where steps are few, and the distribution of X_0 is known or X_0 is an image of many levels;
    tau-leaping for a head that answers with rates.
    """
    if answers == "draws":
        return "student"
    few = num_steps is not None and num_steps <= _FEW
    if few and gives_distribution(process, answers):
        return "multistep"
    if process.mean_suffices:
        is_image = shape is not None and len(shape) == 3
        many_levels = process.num_states is not None and process.num_states >= _MANY
        return "bridge-multistep" if few and is_image and many_levels and answers == "mean" else "bridge"
    return "poisson" if answers == "rates" else "posterior"


def gives_distribution(process: MarkovProcess, answers: str) -> bool:
    """Whether a head that gives `answers` gives the distribution of X_0: of two levels, the mean is all of it."""
    return answers == "categorical" or (answers == "mean" and process.max_state == 1)


def bound_sampler(name: str, process: MarkovProcess, finite_head: bool) -> str:
    """The name of the sampler whose bound stands for that of another one, with the same steps.

    A bridge adds at most ceil(y) units, so its bound is infinite as soon as data needs more. Leaps have the same mean
    and a finite bound: binomial ones, or Poisson ones where counts have no bound, or where a head with
    `Head.finite_bound` false, such as softplus, may predict as much as there is room for, or more.
    """
    if not name.startswith("bridge"):
        return name
    return "binomial" if finite_head and process.max_state is not None else "poisson"


def choose_sampler(sampler: Sampler | str, process: MarkovProcess, answers: str, corrector_steps: int = 0) -> Sampler:
    """A sampler by its name in `SAMPLERS`, or a given one, checked.

    Raises
    ------
    ValueError
        If the process, or a head that answers with means or rates, does not allow it.
    """
    made = SAMPLERS.make(sampler, corrector_steps=corrector_steps) if isinstance(sampler, str) else sampler
    chosen, name = check_sampler(made), type(made).__name__
    chosen.check(process)
    if chosen.needs_draws != (answers == "draws"):
        raise ValueError(f"{name} does not fit a head that gives {answers}; 'student' is for distilled models")
    if chosen.needs_probs and not gives_distribution(process, answers):
        raise ValueError(f"{name} needs a head that gives a distribution over X_0, but this one gives {answers}")
    return chosen
