"""Registries, and objects that are saved as plain JSON and restored by name."""

import json
import subprocess
import sys

import pytest
import torch
from scipy import sparse

import blackout as bo
from blackout.loss import Loss
from blackout.network import HEADS, NETWORKS, Head, Network
from blackout.process import PROCESSES, Halving, MarkovProcess, Schedule
from blackout.process.matrix import GeneratorProcess
from blackout.recipes import RECIPES
from blackout.registry import Registry
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from blackout.training.config import LOSSES, TrainConfig
from worlds import random_generator

ALL = [PROCESSES, SAMPLERS, HEADS, NETWORKS, LOSSES, TIME_RULES, RECIPES]


class Square:
    def __init__(self, side=1.0, colour="red"):
        self.side, self.colour = side, colour

    def config(self):
        return {"side": self.side, "colour": self.colour}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Circle(Square):
    pass


@pytest.fixture
def shapes():
    made = Registry("shape")
    made.add("square", Square, "four equal sides")
    made.add("blue", Square, "the same in blue", colour="blue")
    made.add("ratio", "fractions:Fraction", "imported at first use")
    return made


def test_entries_keep_their_order_and_help(shapes):
    assert list(shapes) == ["square", "blue", "ratio"]
    assert len(shapes) == 3
    assert "blue" in shapes
    assert "green" not in shapes
    assert [shapes.help(name) for name in shapes] == ["four equal sides", "the same in blue", "imported at first use"]
    assert shapes.check("blue") == "blue"


def test_make_passes_defaults_unless_they_are_given(shapes):
    assert shapes["square"] is Square
    assert shapes.make("square", 2.0).config() == {"side": 2.0, "colour": "red"}
    assert shapes.make("blue", side=2.0).config() == {"side": 2.0, "colour": "blue"}
    assert shapes.make("blue", colour="green").colour == "green"


def test_strings_are_imported_at_first_use(shapes):
    from fractions import Fraction

    assert shapes["ratio"] is Fraction
    assert shapes.make("ratio", 3, 4) == Fraction(3, 4)
    shapes.add("nowhere", "no_such_module:Nothing", "is not imported by listing")
    assert "nowhere" in list(shapes)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        shapes["nowhere"]


def test_names_are_unique_and_may_be_removed(shapes):
    with pytest.raises(ValueError, match="shape 'blue' is registered already"):
        shapes.add("blue", Circle, "another")
    shapes.remove("blue")
    assert list(shapes) == ["square", "ratio"]
    shapes.add("blue", Circle, "another")
    assert shapes["blue"] is Circle


def test_unknown_names_are_rejected_with_the_choices(shapes):
    calls = (shapes.__getitem__, shapes.help, shapes.make, shapes.remove, shapes.check)
    for method in calls:
        with pytest.raises(ValueError, match="shape must be one of square, blue, ratio, got 'green'"):
            method("green")


def test_objects_are_described_by_the_name_of_their_class(shapes):
    assert shapes.name_of(Square()) == shapes.find(Square()) == "square"
    assert shapes.find(Circle()) == ""  # a subclass is another class
    with pytest.raises(ValueError, match=r"Circle is not a registered shape: .* SHAPES\.add\('mine', Circle"):
        shapes.name_of(Circle())
    shapes.add("circle", Circle, "round")
    config = json.loads(json.dumps(shapes.to_config(Circle(3.0))))
    assert config == {"kind": "circle", "side": 3.0, "colour": "red"}
    restored = shapes.from_config(config)
    assert type(restored) is Circle
    assert restored.side == 3.0
    assert config["kind"] == "circle"  # the argument is left as it was


def test_invalid_descriptions_are_rejected(shapes):
    for config in ({"kind": "green"}, {}):
        with pytest.raises(ValueError, match="shape must be one of"):
            shapes.from_config(config)
    with pytest.raises(ValueError, match=r"shape 'square': .*'weight'"):
        shapes.from_config({"kind": "square", "weight": 2.0})


@pytest.mark.parametrize("registry", ALL, ids=lambda registry: registry.noun)
def test_registered_entries_can_be_imported_and_have_one_line_of_help(registry):
    for name in registry:
        assert callable(registry[name])
        assert 0 < len(registry.help(name)) < 100
        assert "\n" not in registry.help(name)


def test_registered_classes_have_the_interface_of_their_registry():
    for registry, base in ((PROCESSES, MarkovProcess), (SAMPLERS, bo.Sampler), (HEADS, Head), (NETWORKS, Network)):
        assert all(issubclass(registry[name], base) for name in registry)
    assert all(isinstance(LOSSES.make(name), Loss) for name in LOSSES)
    assert all(isinstance(SAMPLERS.make(name, corrector_steps=2), bo.Sampler) for name in SAMPLERS)
    assert all(isinstance(RECIPES.make(name), TrainConfig) for name in RECIPES)


def test_samplers_by_name_have_the_options_of_their_entry():
    assert SAMPLERS.make("bridge").rounding == "stochastic"
    assert SAMPLERS.make("bridge-nearest").rounding == "nearest"
    assert (SAMPLERS.make("poisson").step_rule, SAMPLERS.make("poisson").events) == ("finite", "poisson")
    assert SAMPLERS.make("poisson-instantaneous").step_rule == "instantaneous"
    assert SAMPLERS.make("binomial").events == "binomial"
    assert SAMPLERS.make("exact", corrector_steps=3).corrector_steps == 3


def test_listing_registries_does_not_import_torch():
    code = """
import sys
from blackout.network import HEADS, NETWORKS
from blackout.process import PROCESSES
from blackout.recipes import RECIPES
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
for registry in (HEADS, NETWORKS, PROCESSES, SAMPLERS, TIME_RULES, RECIPES):
    [registry.help(name) for name in registry]
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Ring(GeneratorProcess):
    """A process of the user's own."""

    arguments = ("num_states", "speed")

    def __init__(self, num_states, speed=1.0, schedule=None):
        self.speed = speed
        step = torch.eye(num_states, dtype=torch.float64)
        super().__init__(speed * (step.roll(1, 1) + step.roll(-1, 1) - 2 * step), ordered=False, schedule=schedule)


@pytest.fixture
def ring():
    PROCESSES.add("ring", Ring, "one step forward or back on a ring")
    yield
    PROCESSES.remove("ring")


LARGE = sparse.diags_array([[1.0] * 2999, [-1.0] + [-2.0] * 2998 + [-1.0], [1.0] * 2999], offsets=[-1, 0, 1])
SAVED = {
    "pure death": bo.PureDeath(5),
    "pure death on N": bo.PureDeath(),
    "birth-death": bo.BirthDeath(6, birth=0.3, death=1.1, immigration=0.7),
    "absorbing": bo.Absorbing(6),
    "absorbing, another mask": bo.Absorbing(6, mask_state=2),
    "uniform": bo.Uniform(6),
    "gaussian": bo.DiscretizedGaussian(6),
    "gaussian, all arguments": bo.DiscretizedGaussian(6, bandwidth=1.5, rate=2.0, terminal_std=1.2),
    "halving": Halving(6),
    "finite state": bo.FiniteState(random_generator(6)),
    "finite state, ordered": bo.FiniteState(random_generator(6), ordered=True),
    "piecewise": bo.PiecewiseGenerator([random_generator(6), random_generator(6, 1)], [1.5]),
    "large and sparse": bo.FiniteState(LARGE),
    "chain": bo.Chain(torch.softmax(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double(), -1)),
    "chain, ordered": bo.Chain([[0.5, 0.5], [0.2, 0.8]], ordered=True),
    "constant": bo.Uniform(6, schedule=Schedule.constant(3.0)),
    "linear": bo.PureDeath(5, schedule=Schedule.linear(0.1, 2.0)),
    "exponential": bo.Absorbing(6, mask_state=1, schedule=Schedule.exponential(0.5, 4.0)),
    "finite state, schedule": bo.FiniteState(random_generator(6), schedule=Schedule.linear(0.1, 2.0)),
    "user class": Ring(6, speed=2.0),
    "user class, schedule": Ring(6, schedule=Schedule.linear(0.1, 2.0)),
}


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize("key", SAVED)
def test_processes_are_restored_from_plain_json(key):
    process = SAVED[key]
    config = PROCESSES.to_config(process)
    restored = PROCESSES.from_config(json.loads(json.dumps(config)))
    assert type(restored) is type(process)
    assert restored is not process
    assert "user class" in key or repr(restored) == repr(process)
    for attribute in ("jumps", "ordered", "num_states", "max_state", "mask_state", "terminal_state", "time_rule"):
        assert getattr(restored, attribute) == getattr(process, attribute), attribute
    x = torch.arange(2)
    for xt, x0 in ((x, x.flip(0)), (x, x)):
        assert torch.equal(restored.log_prob(xt, x0, 2.0), process.log_prob(xt, x0, 2.0))
        assert torch.equal(restored.reverse_rates(x0, xt, 2.0), process.reverse_rates(x0, xt, 2.0))
    t = torch.linspace(0.1, 3, 5, dtype=torch.float64)
    assert torch.equal(restored.clock_time(t), process.clock_time(t))
    assert PROCESSES.to_config(restored) == config


def test_every_registered_process_is_saved_and_restored():
    kinds = {PROCESSES.name_of(process) for process in SAVED.values() if type(process) is not Ring}
    assert kinds == set(PROCESSES)


@pytest.mark.parametrize("levels", [2, 6, 256])
def test_default_processes_hold_the_data_and_are_restored(levels):
    for name in PROCESSES:
        if name in ("finite-state", "piecewise", "chain"):
            with pytest.raises(ValueError, match="has no default: give"):
                PROCESSES[name].for_levels(levels)
            continue
        process = PROCESSES[name].for_levels(levels)
        assert process.max_state == levels - 1
        assert PROCESSES.to_config(PROCESSES.from_config(PROCESSES.to_config(process))) == PROCESSES.to_config(process)


def test_counts_without_a_bound_need_pure_death():
    for name in PROCESSES:
        if name == "pure-death":
            assert PROCESSES[name].for_levels(None).max_state is None
        else:
            with pytest.raises(ValueError, match=r"needs finitely many states|has no default"):
                PROCESSES[name].for_levels(None)


def test_schedules_are_described_by_constructor_and_arguments():
    schedule = Schedule.linear(0.1, 2.0)
    assert schedule.config() == ["linear", 0.1, 2.0]
    with pytest.raises(
        ValueError, match=r"schedule must be Schedule\.constant, linear, exponential or piecewise to be saved"
    ):
        PROCESSES.to_config(bo.Uniform(4, schedule=lambda t: 1 + t))
    for config in (["quadratic", 1.0], [], "linear", None):
        with pytest.raises(ValueError, match="schedule must be one of constant, linear, exponential"):
            Schedule.from_config(config)
    with pytest.raises(ValueError, match="process 'uniform': "):
        PROCESSES.from_config({"kind": "uniform", "num_states": 4, "schedule": ["linear", 0.1]})


def test_unregistered_processes_are_rejected_with_advice():
    with pytest.raises(ValueError, match=r"Ring is not a registered process: .* PROCESSES\.add\('mine', Ring"):
        PROCESSES.to_config(Ring(4))
