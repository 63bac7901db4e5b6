import time

import pytest
import torch

import blackout as bo
from blackout.progress import clock_text, duration_text, rate_text
from blackout.training.pace import Pace


def test_bars_are_shown_if_asked_for_and_not_where_nobody_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randint(0, 4, (20, 6))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(max_count=3), width=8, blocks=1)
    model.fit(x, steps=3, batch_size=4, log_every=1, progress=True)
    assert "3/3" in capsys.readouterr().err
    steps = []
    model.sample(4, num_steps=5, batch_size=2, callback=lambda k, *_: steps.append(k), progress=True)
    assert steps == [1, 2, 3, 4, 5] * 2
    model.fit(x, steps=1, batch_size=4)
    assert len(model.sample(4, num_steps=5)) == 4
    streams = capsys.readouterr()
    assert streams.out == ""


def test_the_first_step_does_not_count_for_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 100.0, 102.0, 104.0, 104.0, 106.0, 106.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    pace = Pace(total=10, done=2)
    pace.advance()  # compiles: 100 s
    assert not pace.counts
    assert pace.seconds_left is None
    pace.advance()
    assert pace.counts
    assert pace.seconds_left == 6 / (1 / 2.0)
    assert pace.lap() == 1 / 4.0
    pace.advance()
    assert pace.lap() == 1 / 2.0


def test_rates_and_durations_in_words() -> None:
    assert [rate_text(speed) for speed in (None, 12.345, 0.25)] == ["", "12.3 steps/s", "4 s/step"]
    seconds = (0.2, 40, 500, 9000, 40_000, 300_000)
    words = ["1 second", "40 seconds", "8 minutes", "2.5 hours", "11 hours", "3.5 days"]
    assert [duration_text(value) for value in seconds] == words
    beyond = 1e18  # more seconds than a calendar of 10,000 years has
    assert (duration_text(beyond), clock_text(beyond)) == ("1e+13 days", "277777777777777:46:40")
    assert clock_text(93784) == "26:03:04"
