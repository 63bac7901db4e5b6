"""A sampler, a time rule and a process that a user registers are offered, exported and used without other changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.process import PROCESSES
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from pages import LocalServer, image_model, unpack


class Extremes(bo.FiniteState):
    """Every state jumps to the lowest and to the highest state, at rate 1/2 each."""

    def __init__(self, num_states: int) -> None:
        generator = -torch.eye(num_states, dtype=torch.float64)
        generator[:, 0] += 0.5
        generator[:, -1] += 0.5
        super().__init__(generator)

    @classmethod
    def for_levels(cls, levels: int | None) -> "Extremes":
        return cls(levels or 2)

    def config(self) -> dict[str, Any]:
        return {"num_states": self.num_states}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Extremes":
        return cls(**config)


class Cautious(bo.TauLeaping):
    """Tau-leaping that rounds to the state before the step where the step is short."""

    def step(self, at: Any, xt: Any, rng: Any) -> Any:
        xs = super().step(at, xt, rng)
        return xt if float(at.s) > 0 and float(at.t - at.s) < 0.01 else xs


def squares(process: bo.MarkovProcess, num_steps: int, t_end: float) -> bo.ObservationTimes:
    k = torch.arange(1, num_steps + 1, dtype=torch.float64) / num_steps
    return bo.ObservationTimes.from_values(t_end * k**2)


@pytest.fixture
def registered() -> Iterator[None]:
    added = (
        (PROCESSES, "extremes", Extremes, "jumps to the lowest and the highest state"),
        (SAMPLERS, "cautious", Cautious, "tau-leaping without short steps"),
        (TIME_RULES, "squares", squares, "squares of equal steps"),
    )
    for registry, name, target, help_line in added:
        registry.add(name, target, help_line)
    yield
    for registry, name, _, _ in added:
        registry.remove(name)


@pytest.mark.usefixtures("registered")
def test_a_registered_sampler_time_rule_and_process_are_offered_and_exported(tmp_path: Path) -> None:
    folder = str(image_model(process=Extremes(5)).save(tmp_path / "model"))
    with LocalServer((folder,)) as server:
        offered, about = server.get("/api/models"), server.get(f"/api/model?name={folder}")
        assert offered["samplers"]["cautious"] == "tau-leaping without short steps"
        assert offered["times"]["squares"] == "squares of equal steps"
        assert (about["process"], about["samplers"]["cautious"]) == ("extremes", None)
        _, start, *_, last = server.sample(
            model=folder, sampler="cautious", times="squares", steps=8, num=3, correctors=1
        )
        _, theory = server.post("/api/theory", {"weights": [1] * 21, "process": "extremes"})
    assert start["times"] == [*squares(Extremes(5), 20, 15.0).subset(8).values.flip(0).tolist(), 0]
    assert "--sampler cautious" in last["command"]
    assert "--times squares" in last["command"]
    assert 'sampler=model.sampler("cautious", corrector_steps=1' in last["python"]
    result: dict[str, Any] = {}
    exec(last["python"], result)
    assert numpy.array_equal(result["x"].numpy(), unpack(last["x"], (3, 1, 4, 4)))

    assert theory["processes"]["extremes"] == "jumps to the lowest and the highest state"
    assert 'PROCESSES["extremes"].for_levels(21)' in theory["code"]
    result.clear()
    exec(theory["code"], result)
    numpy.testing.assert_allclose(result["result"]["forward"].numpy(), theory["forward"], atol=1e-12)
    assert result["paths"].tolist() == theory["trajectories"]
    end = theory["forward"][-1]
    numpy.testing.assert_allclose([end[0], end[20]], [0.5, 0.5], atol=1e-5)
