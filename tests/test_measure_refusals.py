"""What cannot be measured is refused before the work; what is damaged is measured again; nothing is taken for it."""

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from blackout.data import Dataset, make_digits
from blackout.evaluation.all import Plan, compare, evaluate, read_spec
from blackout.evaluation.cache import Notebook
from blackout.evaluation.compare import cell_names
from blackout.evaluation.stages import Measurement
from blackout.figures.record import read
from test_measure import QUICK, binomial_world
from toy_features import use_toy_features

SAMPLED = {**QUICK, "samples": 50, "steps": 2, "images": 8, "times": 2, "bound_images": 2}


def work(*_: Any) -> None:
    raise AssertionError("work began before the refusal")


def changed(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs from one call to the next."""
    kept = {name: value for name, value in report.items() if name not in ("date", "sampling")}
    bits = {"test": {**kept["bits_per_dim"]["test"], "seconds": 0}}
    return {**kept, "bits_per_dim": bits}


class TestEvaluate:
    @pytest.mark.parametrize(
        ("change", "number", "reason"),
        [
            ({"samples": 50}, 20, "at least 50 pictures to compare with, got 20: give more, or samples=0"),
            ({"sampler": "posterior"}, 64, "needs a model whose head gives a law"),
            ({"steps": 5000}, 64, "steps must be at most 100, the model's number of times, got 5000"),
        ],
    )
    def test_what_would_fail_in_the_end_is_refused_at_the_beginning(
        self, change: dict[str, Any], number: int, reason: str, tmp_path: Path
    ) -> None:
        model, data, _ = binomial_world(number)
        with pytest.raises(ValueError, match=reason):
            evaluate(model, tmp_path / "out", data, plan=Plan(**{**QUICK, **change}), tell=work)
        assert not (tmp_path / "out").exists()

    def test_a_report_of_another_model_is_not_written_over(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(16)
        plan = Plan(**{**QUICK, "images": 4, "times": 1, "bound_images": 0})
        evaluate(model, tmp_path, data, plan=plan, source="one")
        before = (tmp_path / "report.json").read_text()
        other = Dataset(x=data.x[:8], name="others", max_state=3)
        with pytest.raises(
            ValueError, match=r"holds the report of other data \(one on binomial\): choose another --out"
        ):
            evaluate(model, tmp_path, other, plan=plan, tell=work)
        with torch.no_grad():
            next(model.predictor.parameters()).add_(1)
        with pytest.raises(ValueError, match=r"holds the report of another model \(one on binomial\)"):
            evaluate(model, tmp_path, data, plan=plan, tell=work)
        assert (tmp_path / "report.json").read_text() == before
        (tmp_path / "report.json").write_text("{")
        evaluate(model, tmp_path, data, plan=plan)

    def test_an_exact_walk_has_no_steps_to_bound(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(8)
        report = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "images": 4, "sampler": "exact"}))
        assert report["sampler_bits_per_dim"] is None

    def test_white_is_the_models_largest_count_not_the_datas(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Data that reaches 1 of 3 is a third as bright as white, and samples may be brighter than the data."""
        network = use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_world(64)
        for largest in (1, 255):
            dark = Dataset(x=data.x.clamp(max=1), name="dark", max_state=largest)
            network.brightest = 0
            report = evaluate(model, tmp_path / str(largest), dark, plan=Plan(**SAMPLED, sampler="binomial"))
            assert report["quality"]["num_samples"] == 50
            assert network.brightest == 255
            assert "from 0 to 3" in (tmp_path / str(largest) / "report.html").read_text()

    def test_the_curve_uses_no_more_images_than_were_asked_for(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(64)
        evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "images": 3}))
        assert json.loads((tmp_path / "parts" / "bits-by-time.json").read_text())["key"]["number"] == 3

    def test_few_samples_are_lost_to_a_kill(self, tmp_path: Path) -> None:
        model, _, _ = binomial_world(1)
        seen: list[float] = []

        def stop(name: str, done: float, total: float) -> None:
            seen.append(done)
            if done > 40:
                raise KeyboardInterrupt

        plan = Plan(samples=64, steps=2, batch_size=64)
        with pytest.raises(KeyboardInterrupt):
            Measurement(model, Notebook(tmp_path), plan, stop).draw(tmp_path / "samples.npz")
        again: list[float] = []
        measured = Measurement(model, Notebook(tmp_path), plan, lambda _, done, __: again.append(done))
        measured.draw(tmp_path / "samples.npz")
        assert min(again) > 32

    def test_samples_drawn_in_other_shards_are_samples_too(self, tmp_path: Path) -> None:
        model, _, _ = binomial_world(1)
        measured = Measurement(model, Notebook(tmp_path), Plan(samples=64, steps=2), lambda *_: None)
        measured.draw(tmp_path / "samples.npz")
        stamp = (tmp_path / "samples.npz").stat().st_mtime_ns
        measured.shard = 256
        measured.draw(tmp_path / "samples.npz")
        assert (tmp_path / "samples.npz").stat().st_mtime_ns == stamp


class TestDamage:
    @pytest.mark.parametrize("file", ["samples.npz", "parts/bits-test.npy"])
    @pytest.mark.parametrize("how", ["empty", "short", "flipped", "one bit", "other"])
    def test_damaged_arrays_are_measured_again(
        self, file: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_world(64)
        first = evaluate(model, tmp_path / "out", data, plan=Plan(**SAMPLED))
        path = tmp_path / "out" / file
        whole = path.read_bytes()
        flipped = bytes(b ^ (0x55 if k % 7 == 3 else 0) for k, b in enumerate(whole))
        bit = whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:]
        damaged = {"empty": b"", "short": whole[:-9], "flipped": flipped, "one bit": bit, "other": b"{}"}
        path.write_bytes(damaged[how])
        again = evaluate(model, tmp_path / "out", data, plan=Plan(**SAMPLED))
        assert changed(again) == changed(first)
        if file == "samples.npz":
            with numpy.load(path) as arrays:
                assert len(arrays["x"]) == 50
        else:
            assert numpy.load(path).shape == (8, 2)

    @pytest.mark.parametrize("value", ["{}", "[]", "null", '{"mean": 1}', "3"])
    def test_parts_with_another_content_are_measured_again(
        self, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_world(64)
        first = evaluate(model, tmp_path / "out", data, plan=Plan(**SAMPLED))
        parts = list((tmp_path / "out" / "parts").glob("*.json"))
        assert len(parts) == 5
        for path in parts:
            path.write_text(json.dumps({**json.loads(path.read_text()), "value": json.loads(value)}))
        assert changed(evaluate(model, tmp_path / "out", data, plan=Plan(**SAMPLED))) == changed(first)


def write_spec(folder: Path, text: str) -> Path:
    binomial_world(1)[0].save(folder / "model")
    numpy.save(folder / "mine.npy", binomial_world(80)[1].x.numpy())
    head = f'dataset = ""\ndata = "{folder}/mine.npy"\n'
    (folder / "spec.toml").write_text(head + text.replace("MODEL", f'[[model]]\nsource = "{folder}/model"'))
    return folder / "spec.toml"


SMALL = "MODEL\n[measure]\nimages = 8\ntimes = 2\n"


class TestCompare:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                'MODEL\n[[model]]\nsource = "nowhere"\n[sample]\nsteps = 2',
                "nowhere: nowhere is neither a folder nor a model that ships",
            ),
            ('MODEL\n[sample]\nsampler = ["bridge", "posterior"]\nsteps = 2', "model: sampler 'posterior' needs"),
            ("MODEL\n[sample]\nsteps = [2, 5000]", "model: steps must be at most 100"),
            (
                'MODEL\n[train]\nrecipe = "digits"\nhead = ["softplus", "hat"]\n[sample]\nsteps = 2',
                "digits-hat: head must be one of",
            ),
        ],
    )
    def test_what_would_fail_in_the_end_is_refused_at_the_beginning(
        self, text: str, reason: str, tmp_path: Path
    ) -> None:
        spec = read_spec(write_spec(tmp_path, text))
        with pytest.raises(ValueError, match=reason):
            compare(spec, tmp_path / "out", torch.device("cpu"), tell=work, say=work)
        assert not (tmp_path / "out").exists()

    def test_too_few_pictures_are_refused_at_the_beginning(self, tmp_path: Path) -> None:
        spec = read_spec(write_spec(tmp_path, SMALL + "[sample]\nsteps = 2\nnum = 50"))
        numpy.save(tmp_path / "mine.npy", binomial_world(20)[1].x.numpy())
        with pytest.raises(ValueError, match="at least 50 pictures to compare with, got 20"):
            compare(spec, tmp_path / "out", torch.device("cpu"), tell=work)

    def test_plans_that_differ_in_their_numbers_have_folders_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        samples = "[[sample]]\nsteps = 2\nnum = 50\n[[sample]]\nsteps = 2\nnum = 60\n[[sample]]\nsteps = 3\nnum = 60\n"
        spec = read_spec(write_spec(tmp_path, SMALL + samples))
        assert cell_names(spec.plans) == ["bridge-2-0-50", "bridge-2-0-60", "bridge-3-0"]
        first = compare(spec, tmp_path / "out", torch.device("cpu"))
        files = sorted((tmp_path / "out").rglob("samples.npz"))
        stamps = [file.stat().st_mtime_ns for file in files]
        assert compare(spec, tmp_path / "out", torch.device("cpu"))["rows"] == first["rows"]
        assert [file.stat().st_mtime_ns for file in files] == stamps
        assert len(files) == 3
        record = json.loads((tmp_path / "out" / "record.json").read_text())
        assert record["columns"][-1] == "samples"
        assert [row[-1] for row in record["rows"]] == [50, 60, 60]
        assert record["note"].startswith("Samples as in the table.")

    def test_the_row_of_held_out_data_says_how_many_there_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        from PIL import Image

        for split, number in (("train", 70), ("test", 52)):
            (tmp_path / "own" / split).mkdir(parents=True)
            for k, x in enumerate(make_digits(split=split).x[:number, 0, :4, :4].clamp(max=3).numpy()):
                Image.fromarray(x.astype("uint8")).save(tmp_path / "own" / split / f"{k}.png")
        spec = read_spec(write_spec(tmp_path, SMALL + "[sample]\nsteps = 2\nnum = 60"), str(tmp_path / "own"))
        result = compare(spec, tmp_path / "out", torch.device("cpu"))
        assert [row["num_samples"] for row in result["rows"]] == [52, 60]
        assert (result["data"]["train"], result["data"]["test"]) == (70, 52)

    def test_the_record_of_one_image_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        spec = read_spec(write_spec(tmp_path, SMALL + "[sample]\nsteps = 2\nnum = 50"), None, ["measure.images=1"])
        result = compare(spec, tmp_path / "out", torch.device("cpu"))
        assert result["rows"][0]["bits_per_dim"]["error"] is None
        (tmp_path / "records").mkdir()
        (tmp_path / "out" / "record.json").rename(tmp_path / "records" / "one.json")
        (record,) = read(tmp_path / "records")
        assert float(record.rows[0][1]) == pytest.approx(result["rows"][0]["bits_per_dim"]["value"])
        assert record.note.startswith("50 samples a row.")
