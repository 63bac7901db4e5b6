"""Sequences of labels: data, transformer, models with padding, substitution models, remasking, references."""

import gzip
import hashlib
import itertools
import math
import sys
from pathlib import Path

import numpy
import pytest
import torch
from scipy import linalg

import blackout as bo
from blackout.data import Alphabet, from_sequences, open_dataset, read_sequences, sequences
from blackout.data.sequences import is_held_out
from blackout.evaluation import AutoregressiveModel, xz_bits
from blackout.evaluation.cache import Cache
from blackout.evaluation.config import EvalConfig
from blackout.evaluation.metric import SampleSet
from blackout.evaluation.ngrams import NgramDistance, ngram_distance, ngram_novelty
from blackout.evaluation.splits import subsample
from blackout.evaluation.stages import Evaluation
from blackout.io import read_gaps, write_texts
from blackout.network import HEADS, NETWORKS, Transformer, TransformerConfig
from blackout.network.build import default_head
from blackout.network.head import Observation
from blackout.network.transformer import to_digits
from blackout.random import Streams
from blackout.recipes import build_model, recipe
from blackout.sampling import Step
from blackout.training.loop import divergence
from worlds import (
    entropy,
    fit,
    frequencies,
    lattice,
    marginal,
    on_lattice,
    p_value,
    total_variation,
)

SMALL = {"width": 16, "blocks": 1}


def world() -> tuple[torch.Tensor, torch.Tensor]:
    """All sequences of three of four labels, with uneven weights."""
    points = lattice(4, 3)
    return points, torch.from_numpy(numpy.random.default_rng(0).dirichlet(numpy.full(len(points), 0.4)))


def test_bound_of_the_exact_posterior_is_the_entropy_of_sequences():
    points, weights = world()
    process = bo.Absorbing(5)
    denoise = bo.ExactPosterior(process, points, weights)
    nats = bo.evidence_bound(denoise, process, points, method="exact", num_times=256)
    assert float(weights @ nats) == pytest.approx(entropy(weights), abs=1e-6)


def test_remasking_leaves_the_marginal_distribution_unchanged():
    # Pearson's test at 1e-4; 30,000 draws.
    points, weights = world()
    process, s = bo.Absorbing(5), torch.tensor(0.5, dtype=torch.float64)
    at = Step.of(bo.ExactPosterior(process, points, weights), process, s, s)
    index = torch.from_numpy(numpy.random.default_rng(1).choice(len(points), 30_000, p=weights.numpy()))
    x, rng = process.sample(points[index], s, torch.Generator().manual_seed(0)), Streams(0, 30_000)
    expected, places = marginal(process, points, weights, 0.5), 5 ** torch.arange(2, -1, -1)

    def counts(states):
        return torch.bincount((states * places).sum(-1), minlength=125).double()

    corrected = bo.Remasking(corrector_steps=3).correct(at, x, rng)
    assert float((corrected != x).double().mean()) > 0.1
    assert p_value(counts(corrected), expected) > 1e-4
    # From labels drawn independently of each other it leads nearer.
    wrong = torch.where(x == 4, 4, points[index[torch.randperm(30_000, generator=torch.manual_seed(1))]])
    wrong = torch.where(x == 4, 4, torch.stack([wrong[:, 0], wrong[:, 1].roll(1), wrong[:, 2].roll(2)], 1).clamp(max=3))
    nearer = bo.Remasking(corrector_steps=6).correct(at, wrong, rng)
    before, after = (total_variation(counts(v) / 30_000, expected) for v in (wrong, nearer))
    assert after < 0.7 * before
    with pytest.raises(ValueError, match="process must have a mask"):
        bo.Remasking().check(bo.Uniform(5))


def test_remasking_of_partly_observed_labels_has_their_conditional_distribution():
    # Pearson's test at 1e-4; 20,000 samples. One step draws the labels independently, remasking makes them agree.
    points, weights = world()
    process, times = bo.Absorbing(5), bo.ObservationTimes.from_values([1e-3, 15.0])
    denoise, seen = bo.ExactPosterior(process, points, weights), points[:, 0] == 1
    expected = on_lattice(points[seen], weights[seen] / weights[seen].sum(), 5)
    errors = []
    for corrector_steps in (0, 12):
        sampler = bo.Inpainting(bo.Remasking(corrector_steps=corrector_steps), [1, 0, 0], [True, False, False])
        samples = sampler.sample(denoise, process, times, (20_000, 3))
        assert bool((samples[:, 0] == 1).all())
        counts = frequencies(samples, 5)
        errors.append(total_variation(counts / 20_000, expected))
    assert p_value(counts, expected) > 1e-4
    assert errors[1] < 0.2 * errors[0]


@pytest.mark.parametrize("length", [2, 40])
def test_auto_chooses_a_transformer_for_long_rows_of_labels(length):
    shape = (length,)
    assert default_head(bo.Absorbing(9), shape) == ("sequence" if length == 40 else "categorical")
    assert default_head(bo.PureDeath(9), shape) == "bounded-logit"
    model = bo.DiffusionModel.for_data(torch.zeros(4, length, dtype=torch.int64), bo.Uniform(9), **SMALL)
    assert NETWORKS.find(model.predictor.network) == ("transformer" if length == 40 else "mlp")
    counts = bo.DiffusionModel.for_data(torch.ones(4, length, dtype=torch.int64), bo.PureDeath(9), **SMALL)
    assert NETWORKS.find(counts.predictor.network) == "mlp"


def test_the_transformer_sees_order_labels_and_no_padding():
    torch.manual_seed(0)
    network = Transformer(TransformerConfig(length=6, labels=70_000, outputs=4, pad=9, width=32, blocks=2))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    x, t = torch.tensor([[1, 2, 3, 65_543, 9, 9]]), torch.zeros(1)

    def at(x):
        return network(to_digits(x, 70_000), t).unflatten(1, (6, 4))

    plain = at(x)
    assert not torch.allclose(at(x[:, [1, 0, 2, 3, 4, 5]])[:, 2], plain[:, 2], atol=1e-3)
    assert not torch.allclose(at(torch.where(x == 65_543, 7, x))[:, 3], plain[:, 3], atol=1e-3)  # beyond bfloat16
    shorter = Transformer(TransformerConfig(length=4, labels=70_000, outputs=4, width=32, blocks=2))
    shorter.load_state_dict(network.state_dict())
    alone = shorter(to_digits(x[:, :4], 70_000), t).unflatten(1, (4, 4))
    assert torch.allclose(alone, plain[:, :4], atol=1e-5)
    half = network(to_digits(x, 70_000).bfloat16(), t)
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.float().unflatten(1, (6, 4))[:, :4], plain[:, :4], atol=0.3, rtol=0.1)
    causal = Transformer(TransformerConfig(length=6, labels=10, outputs=4, causal=True, width=32, blocks=1))
    first, second = (causal(to_digits(v, 10), t).unflatten(1, (6, 4)) for v in (x[:, :6] % 10, (x % 10).flip(1)))
    assert first.shape == second.shape
    with pytest.raises(ValueError, match="transformer needs the head 'sequence'"):
        bo.DiffusionModel.for_data(x % 4, bo.PureDeath(9), kind="transformer")


@pytest.mark.parametrize("process", [bo.Absorbing(9), bo.Uniform(8)], ids=repr)
def test_network_and_divergence_are_compiled_as_one_graph(process):
    x = torch.randint(8, (4, 16), generator=torch.manual_seed(0))
    predictor = bo.DiffusionModel.for_data(x, process, **SMALL).predictor
    observation = Observation(process, process.sample(x, 0.5), torch.full((4,), 0.5))
    shown, head = predictor.head.encode(observation), predictor.head
    network = torch.compile(predictor.network, backend="eager", fullgraph=True)
    assert torch.allclose(network(shown, torch.zeros(4)), predictor.network(shown, torch.zeros(4)), atol=1e-6)
    raw = torch.randn(4, 16, process.num_states, generator=torch.manual_seed(0))
    _ = observation.transitions
    compiled = torch.compile(divergence, backend="eager", dynamic=False)
    assert torch.allclose(compiled(head, raw, observation, x, None), divergence(head, raw, observation, x, None))


@pytest.mark.parametrize("process", ["absorbing", "uniform", "own.npz"])
def test_sequences_of_different_lengths_are_trained_sampled_and_saved(process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numpy.savez("own.npz", generator=[[-1.0, 1.0], [2.0, -2.0]], ordered=False)
    data = from_sequences([[0, 1] * (4 + k % 5) for k in range(40)], max_state=1)
    assert (data.pad_state, data.max_state, data.x.shape) == (2, 2, (40, 16))
    config = recipe("stdlib-tiny").replace(process=process, steps=60, batch_size=16, warmup=5, ema=0.9, **SMALL)
    model, reports = build_model(config, data), []
    model.train(config.replace(log_every=5), data.x, listener=lambda report, _: reports.append(report.bits_per_dim))
    assert reports[0] > 0.8  # one bit a label before training, though a quarter of the entries are padding
    x = model.sample(30, num_steps=20, seed=1)
    lengths = (x != 2).sum(-1)
    assert set(lengths.tolist()) == {8, 10, 12, 14, 16}
    assert bool(((x == 2) == (torch.arange(16) >= lengths.unsqueeze(-1))).all())
    again = bo.load(model.save(tmp_path / "model"))
    assert torch.equal(again.sample(30, num_steps=20, seed=1), x)
    assert torch.equal(again.sample(5, num_steps=20, seed=1, start_index=3), x[3:8])
    with pytest.raises(ValueError, match="observed and mask go together, got mask alone"):
        model.sample(2, mask=torch.ones(16, dtype=torch.bool))
    # Bits are those of the labels alone: twice the padding changes nothing.
    bits = model.bits_per_dim(data.x, num_times=8)
    assert 0 < float(bits) < 1.1
    numpy.savez("four.npz", generator=[[-3.0, 1, 1, 1], [1, -3, 1, 1], [1, 1, -3, 1], [1, 1, 1, -3]])
    for other, message in (
        ("gaussian", "process must be Absorbing, Uniform or FiniteState for sequences of different lengths"),
        ("four.npz", "process must have one state for each of the 2 labels, got 4 in four.npz"),
    ):
        with pytest.raises(ValueError, match=message):
            build_model(config.replace(process=other), data)


def test_classes_and_guidance_of_sequences():
    x = torch.cat([torch.zeros(32, 16), torch.ones(32, 16)]).long()
    labels = torch.arange(2).repeat_interleave(32)
    model = bo.DiffusionModel.for_data(x, bo.Absorbing(3), num_classes=2, **SMALL)
    model.fit(x, labels, steps=80, batch_size=32, learning_rate=1e-2, ema=0.8, label_dropout=0.1)
    samples = model.sample(20, num_steps=20, label=1, guidance=2.0)
    assert float(samples.double().mean()) > 0.9


def test_text_is_split_and_comes_back(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("abcde\n" * 100)
    train, test = (open_dataset(path, split, length=20) for split in ("train", "test"))
    assert (len(train), len(test)) == (27, 3)
    assert train.alphabet == Alphabet("characters", "\nabcde\N{REPLACEMENT CHARACTER}")
    assert "".join(train.alphabet.texts(train.x)) == ("abcde\n" * 90)[: 27 * 20]
    assert train.alphabet.encode("z") == [6]
    with gzip.open(tmp_path / "corpus.txt.gz", "wt") as file:
        file.write("é" * 50)
    assert read_sequences(tmp_path / "corpus.txt.gz", length=10, alphabet="bytes").alphabet.decode([195, 169]) == "é"
    with pytest.raises(ValueError, match="text must have at least 256 labels, the length of a sequence, got 60"):
        open_dataset(path, "test")


def test_dna_reads_and_proteins(tmp_path):
    rng = numpy.random.default_rng(0)
    genome = "".join(rng.choice(list("ACGT"), 5000))
    (tmp_path / "genome.fasta").write_text(f">one\n{genome[:2000]}\n{genome[2000:].lower()}\n")
    data = open_dataset(tmp_path / "genome.fasta", length=100)
    assert (data.alphabet.symbols, data.pad_state, data.x.shape) == ("ACGT", None, (45, 100))
    assert data.alphabet.decode(data.x[1]) == genome[100:200]
    reads = "".join(f"@r\n{'ACGU' * (k + 1)}\n+\n{'I' * 4 * (k + 1)}\n" for k in range(20))
    (tmp_path / "reads.fastq").write_text(reads)
    data = open_dataset(tmp_path / "reads.fastq")
    assert (data.x.shape, data.pad_state) == ((18, 80), 4)
    assert data.alphabet.texts(data.x)[1] == "ACGTACGT"
    (tmp_path / "p.faa").write_text("".join(f">{k}\nMKVLAW\n" for k in range(20)))
    data = open_dataset(tmp_path / "p.faa")
    assert (data.alphabet.symbols, data.pad_state) == ("AKLMVW", None)  # all of one length
    with pytest.raises(ValueError, match="length must be at least 3, that of the longest sequence, got 2"):
        from_sequences([[0, 1, 0]], length=2)
    lengths = [30 + 40 * k for k in range(20)]  # proteins, of which some are longer than 512
    (tmp_path / "q.faa").write_text("".join(f">{n}\n{'MKVLAWYQNE' * (n // 10)}\n" for n in lengths))
    data = open_dataset(tmp_path / "q.faa", length=300)
    assert (data.x.shape[1], data.pad_state, data.notes) == (300, 10, ())
    assert "".join(data.alphabet.texts(data.x)) == "".join("MKVLAWYQNE" * (n // 10) for n in lengths[:18])
    assert open_dataset(tmp_path / "q.faa", "test", length=300).x.shape[1] == 300
    (tmp_path / "n.fasta").write_text(f">a\n{genome}N{genome}\n")
    data = open_dataset(tmp_path / "n.fasta", length=100)
    assert data.notes == (
        "1 of 91 pieces were left out because of other letters than ACGT",
        "1 of 91 pieces were left out because they are shorter than 100",
    )
    (tmp_path / "bad.fasta").write_text("ACGT\n")
    with pytest.raises(ValueError, match="a FASTA file must have lines that start with >"):
        open_dataset(tmp_path / "bad.fasta")


def test_the_standard_library_has_a_fixed_split():
    test = open_dataset("stdlib", "test")
    assert test.name.startswith("stdlib-3.")
    assert len(test) > 1000
    text = test.alphabet.decode(test.x.flatten())
    assert is_held_out("ast.py")
    assert "A modified abstract syntax tree" in text
    assert "Abstract Base Classes (ABCs) according to PEP 3119" not in text  # abc.py
    assert [is_held_out(name) for name in ("abc.py", "json/encoder.py", "typing.py")] == [False, False, False]


def hky(kappa: float, frequencies: numpy.ndarray, branch: float) -> numpy.ndarray:
    """Transition probabilities of HKY85 in closed form: Felsenstein, Inferring Phylogenies (2004), Eq. 13.12."""
    purine, pyrimidine = frequencies[[0, 2]].sum(), frequencies[[1, 3]].sum()
    group = numpy.array([purine, pyrimidine, purine, pyrimidine])
    a, c, g, t = frequencies
    beta = 1 / (2 * purine * pyrimidine + 2 * kappa * (a * g + c * t))
    out, decay = numpy.zeros((4, 4)), math.exp(-beta * branch)
    for i in range(4):
        for j in range(4):
            rate = math.exp(-beta * branch * (1 + group[j] * (kappa - 1)))
            target = frequencies[j] * (1 + (1 / group[j] - 1) * decay)
            if i == j:
                out[i, j] = target + (group[j] - frequencies[j]) / group[j] * rate
            elif i % 2 == j % 2:
                out[i, j] = target - frequencies[j] / group[j] * rate
            else:
                out[i, j] = frequencies[j] * (1 - decay)
    return out


def test_substitution_models_equal_closed_forms():
    frequencies = numpy.array([0.35, 0.15, 0.2, 0.3])
    process = bo.substitution_model(3.0, frequencies)
    for branch in (0.01, 0.4, 3.0):
        assert numpy.allclose(process.probs(torch.arange(4), branch), hky(3.0, frequencies, branch), rtol=1e-10)
        same = 0.25 + 0.75 * math.exp(-4 / 3 * branch)
        assert numpy.allclose(numpy.diag(bo.substitution_model().probs(torch.arange(4), branch)), same, rtol=1e-10)
    gtr = bo.substitution_model([1.0, 3.0, 0.5, 2.0, 4.0, 1.5], frequencies).generator.numpy()
    flow = frequencies[:, None] * gtr
    assert numpy.allclose(flow, flow.T)
    assert float(-(frequencies @ numpy.diag(gtr))) == pytest.approx(1)
    assert numpy.allclose(frequencies @ linalg.expm(gtr), frequencies)
    draws = process.terminal((20_000,), torch.Generator().manual_seed(0))
    assert fit(draws, frequencies) > 1e-4
    for kappa in (numpy.int64(3), numpy.float32(3), torch.tensor(3)):
        assert torch.equal(bo.substitution_model(kappa, frequencies).generator, process.generator)
    with pytest.raises(ValueError, match="rates must be 6 positive numbers"):
        bo.substitution_model([1.0, 2.0])
    for rates, given, message in (
        (None, frequencies, "rates must be a number"),
        (1.0, 4, "frequencies must be a list"),
    ):
        with pytest.raises(ValueError, match=message):
            bo.substitution_model(rates, given)


def test_ngrams_and_references():
    x, y = torch.tensor([[0, 1, 0, 1]] * 3), torch.tensor([[0, 0, 1, 1]] * 3)
    assert ngram_distance(x, y, 1) == 0
    assert ngram_distance(x, y, 2) == pytest.approx(2 / 3)  # 01 10 01 against 00 01 11
    assert ngram_novelty(x, y, 2) == pytest.approx(1 / 3)
    assert ngram_novelty(x, x, 4) == 0
    padded, data = torch.tensor([[0, 1, 2, 2], [1, 2, 2, 2]]), torch.tensor([[0, 1, 0, 2], [2, 2, 2, 2]])
    values = NgramDistance()(*(SampleSet(x=v, pad_state=2) for v in (padded, data)))
    # Of single labels 1/3 against 2/3 are 0; the one pair 01 against 01 and 10; 01 is the longest of the first.
    assert list(values.values()) == pytest.approx([1 / 3, 1 / 2, 1 / 2, 0])
    text = b"blackout " * 500
    assert xz_bits(text, text) < xz_bits(text) < 1
    rows = torch.randint(4, (64, 1), generator=torch.manual_seed(0)).expand(-1, 8)  # one label, eight times
    model = AutoregressiveModel(4, 8, **SMALL).fit(rows, steps=150, batch_size=32, learning_rate=1e-2)
    assert float(model.bits_per_dim(rows)) == pytest.approx(2 / 8, abs=0.05)


def test_the_autoregressive_reference_is_measured_without_dropout():
    rows = torch.randint(4, (16, 8), generator=torch.manual_seed(0))
    model = AutoregressiveModel(4, 8, dropout=0.5, **SMALL).fit(rows, steps=20, batch_size=16, learning_rate=1e-2)
    assert float(model.bits_per_dim(rows)) == float(model.bits_per_dim(rows))


def test_references_are_measured_on_the_sequences_of_the_bound(tmp_path):
    data = from_sequences([[k % 3, 1, 2, 0, 1] for k in range(40)], max_state=3)
    model = bo.DiffusionModel.for_data(data.x, bo.Absorbing(5).with_padding(), head="sequence", **SMALL)
    model.fit(data.x, steps=3, batch_size=8)
    config = EvalConfig(num_data=5, num_samples=0, seed=1)
    run = Evaluation(model, config, Cache(tmp_path), tmp_path / "samples.npz", lambda *_: None)
    other = AutoregressiveModel(4, 5, seed=1, **SMALL).fit(data.x, steps=3, batch_size=8)
    found = run.references(data, data)
    assert found["autoregressive"] == pytest.approx(float(other.bits_per_dim(subsample(data, 5, 1))))
    assert found["xz"] == pytest.approx(xz_bits(bytes(data.x.flatten().tolist())))  # a byte a label, no padding here


def test_tokens_of_a_tokenizers_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "cat": 1, "sat": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "words.json"))
    (tmp_path / "corpus.txt").write_text("a cat sat " * 20)
    data = read_sequences(tmp_path / "corpus.txt", length=6, alphabet=str(tmp_path / "words.json"))
    assert (data.x[0].tolist(), data.alphabet.decode(data.x[0]), data.max_state) == (
        [0, 1, 2] * 2,
        "a cat sat a cat sat",
        3,
    )
    assert Alphabet(**data.alphabet.config()) == data.alphabet


def test_unknown_alphabets_are_named():
    assert "sequence" in HEADS
    with pytest.raises(ValueError, match="alphabet must be characters, bytes or a tokenizer's"):
        Alphabet.by_name("words", "text")


def test_gaps_of_text_and_samples_in_files(tmp_path, capsys):
    letters, path = Alphabet("characters", "ACGT"), tmp_path / "gaps.txt"
    path.write_text("A?G\n")
    observed, mask = read_gaps(path, letters, 5, "?")
    assert (observed.tolist(), mask.tolist()) == ([0, 0, 2, 0, 0], [True, False, True, False, False])
    write_texts(["ACGT" * 20, "A"], tmp_path / "out.fasta")
    assert (tmp_path / "out.fasta").read_text() == f">sample_0\n{'ACGT' * 15}\n{'ACGT' * 5}\n>sample_1\nA\n"
    write_texts(["A", "C"], None)
    assert capsys.readouterr().out == "A\n--------\nC\n"
    for text, gap, message in (
        ("AXG", "?", "got 'X'"),
        ("ACGTACGT", "?", "at most 5 characters"),
        ("A", "", "gap must"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_gaps(path, letters, 5, gap)


def test_the_benchmark_measures_each_model_and_resumes(tmp_path, monkeypatch):
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from benchmarks.sequences import run, spread

    (tmp_path / "text.txt").write_text("Banana 1, " * 200)
    monkeypatch.setattr(
        "benchmarks.sequences.open_dataset",
        lambda _, split, length: open_dataset(tmp_path / "text.txt", split, length=length),
    )
    sizes = {"preset": "tiny", "width": 16, "blocks": 1, "length": 16, "num_data": 2, "seeds": 1}
    results = list(run(tmp_path, 1e-6, models=("classes", "autoregressive"), **sizes))
    assert [(r["model"], r["seed"], r["sequences"], r["steps"]) for r in results] == [
        ("classes", 0, 2, 1), ("autoregressive", 0, 2, 1),
    ]  # fmt: skip
    assert set(results[0]["sampler"]) == {"8 steps", "32 steps", "128 steps", "continuous"}
    assert 0 < results[0]["bits"] < 8
    assert list(run(tmp_path, 1e-6, models=("classes",), **sizes)) == results[:1]
    with pytest.raises(ValueError, match="classes-0 holds a result of other options, minutes: choose another folder"):
        list(run(tmp_path, 1e-6, models=("classes",), steps=2, **sizes))
    (other,) = run(tmp_path / "steps", 1.0, models=("autoregressive",), steps=2, dropout=0.1, **sizes)
    assert other["steps"] == 2
    assert spread(torch.arange(100).unsqueeze(-1), 3).flatten().tolist() == [0, 49, 99]


PADDED = [
    bo.Absorbing(3).with_padding(),
    bo.Uniform(2).with_padding(),
    bo.FiniteState([[-1, 1], [3, -3]]).with_padding(),
]


@pytest.mark.parametrize("process", PADDED, ids=repr)
def test_bound_of_steps_equals_a_sum_over_all_paths_of_padded_sequences(process):
    """Two labels in one or two places, three steps, any denoiser: matrix exponentials and sums over all states.

    Within five standard errors of 40,000 paths: fails for one seed in a million; the seed is fixed.
    """
    size, pad = process.num_states, process.pad_state
    generator, times = process.generator.numpy(), [0.4, 1.1, 3.0]
    step = {(s, t): linalg.expm(generator * (t - s)) for s, t in zip([0.0, *times], times, strict=False)}
    reach = {t: linalg.expm(generator * t) for t in [0.0, *times]}
    end = process.terminal_log_prob(torch.arange(size)).exp().numpy()

    def guess(xt, t):  # weights of the labels 0 and 1, by all of xt and the time
        first = torch.sigmoid((xt * torch.tensor([1.0, -0.7])).sum(-1) - t).unsqueeze(-1).expand(xt.shape).double()
        weights = torch.zeros(*xt.shape, size, dtype=torch.float64)
        weights[..., 0], weights[..., 1] = first, 1 - first
        return bo.CategoricalPosterior(process, xt, t, weights)

    def bridge(o, n, s, t):  # of X_s, from X_0 = o and X_t = n
        return reach[s][o] * step[s, t][:, n] / reach[t][o, n]

    def kernel(xt, t, s, d):  # p(x_s | x_t) of component d
        weights = guess(torch.tensor([xt]), torch.tensor([t], dtype=torch.float64)).u[0, d].numpy()
        posterior = weights * reach[t][:, xt[d]]
        return sum(p * bridge(o, xt[d], s, t) for o, p in enumerate(posterior / posterior.sum()) if p > 0)

    def ended(t):  # P(X_3 is a state of the terminal distribution | X_t), on which paths are conditioned
        return linalg.expm(generator * (3.0 - t)) @ (end > 0)

    for x0 in ((0, 1), (1, pad)):
        labels = [d for d in (0, 1) if x0[d] != pad]
        total = 0.0
        for d in labels:
            last = reach[3.0][x0[d]] * (end > 0) / ended(0.0)[x0[d]]
            total += float(numpy.sum(last[last > 0] * numpy.log(last[last > 0] / end[last > 0])))
        for s, t in zip([0.0, *times], times, strict=False):
            for xt in itertools.product(range(size), repeat=2):
                share = math.prod(reach[t][x0[d], xt[d]] * ended(t)[xt[d]] / ended(0.0)[x0[d]] for d in (0, 1))
                for d in labels if share > 0 else ():
                    q, p = bridge(x0[d], xt[d], s, t), kernel(xt, t, s, d)
                    total += share * float(numpy.sum(q[q > 0] * numpy.log(q[q > 0] / p[q > 0])))
        rows = torch.tensor([x0]).expand(40_000, -1)
        grid = bo.ObservationTimes.from_values(times)
        for num_steps in (None, 2):
            nats = bo.PosteriorBridge().bound(guess, process, grid, rows, num_steps=num_steps)
            assert float(nats.mean()) == pytest.approx(total, abs=5 * float(nats.std()) / 200)


def test_padding_of_a_substitution_process():
    """The process of the labels alone, with an isolated state beside it: matrix exponentials and enumeration."""
    plain = bo.substitution_model(3.0, [0.35, 0.15, 0.2, 0.3])
    process, t = plain.with_padding(), torch.tensor([0.01, 0.8], dtype=torch.float64)
    for k, matrix in enumerate(process.transition_matrices(t)):
        assert numpy.allclose(matrix[:4, :4], linalg.expm(plain.generator.numpy() * float(t[k])), rtol=1e-10)
        assert matrix[4].tolist() == matrix[:, 4].tolist() == [0, 0, 0, 0, 1]
    points, weights = lattice(4, 2), torch.from_numpy(numpy.random.default_rng(0).dirichlet(numpy.full(16, 0.5)))
    padded = torch.cat([points, torch.full((16, 1), 4)], 1)
    nats = bo.evidence_bound(
        bo.ExactPosterior(process, padded, weights), process, padded, method="exact", num_times=300
    )
    assert float(weights @ nats) == pytest.approx(entropy(weights), abs=1e-5)
    ends = [bo.ObservationTimes.for_process(p, 20, x0=x).t_end for p, x in ((plain, points), (process, padded))]
    assert ends[0] <= ends[1] < ends[0] + 1
    again = type(process).from_config(process.config())
    assert (again.pad_state, again.generator.tolist()) == (4, process.generator.tolist())
    with pytest.raises(ValueError, match="process must not have padding yet"):
        process.with_padding()
    with pytest.raises(ValueError, match="pad_state must be a state that nothing leaves or enters, got 1"):
        bo.FiniteState([[-1, 1], [1, -1]], pad_state=1)


def test_no_sampler_turns_labels_into_padding():
    """Jumps of ±1 between three labels: several at once would pass the last label."""
    process = bo.FiniteState([[-1, 1, 0], [1, -2, 1], [0, 1, -1]]).with_padding()
    denoise = bo.ExactPosterior(process, torch.tensor([[0, 1], [2, 2]]))
    labels, rng = torch.full((1000, 2), 2), Streams(0, 1000)
    s, t = torch.tensor([0.1, 2.0], dtype=torch.float64)
    for sampler in (bo.TauLeaping(), bo.PosteriorBridge(), bo.MultistepBridge()):
        assert int(sampler.step(Step.of(denoise, process, s, t), labels, rng).max()) <= 2
    with pytest.raises(ValueError, match="ordered must be False with a pad_state"):
        bo.FiniteState(process.generator, ordered=True, pad_state=3)
    with pytest.raises(ValueError, match="generator must have two labels beside pad_state, got 2 states"):
        bo.FiniteState(torch.zeros(2, 2), pad_state=1)


def test_the_chloroplast_genome_ships_without_its_repeat():
    """Checksum of bases 1 to 128,214 of NC_000932.1, as in Biopython's copy of the GenBank record."""
    train, test = (open_dataset("chloroplast", split, length=100) for split in ("train", "test"))
    assert (train.name, train.alphabet.symbols, len(train), len(test)) == ("chloroplast", "ACGT", 1153, 128)
    with gzip.open(sequences._CHLOROPLAST, "rt") as file:
        genome = "".join(line.strip() for line in file if not line.startswith(">"))
    assert hashlib.md5(genome.encode()).hexdigest() == "ef65e668efcfb47c84c6c9257e2a1671"
    seen, held_out = genome[: -(len(genome) // 10)], genome[-(len(genome) // 10) :]
    assert train.alphabet.decode(train.x.flatten()) == seen[:115_300]
    assert train.alphabet.decode(test.x.flatten()) == held_out[:12_800]
    back = seen.translate(str.maketrans("ACGT", "TGCA"))[::-1]
    known = {text[k : k + 40] for text in (seen, back) for k in range(len(text) - 39)}
    assert not any(held_out[k : k + 40] in known for k in range(len(held_out) - 39))


def test_markov_chains_of_the_example_of_nucleotides(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    from nucleotides import markov_bits

    train, test = torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0, 1, 2]])
    # p(A) = 3/8; A is followed by C twice: (2 + 1) / (2 + 4); C once by A: p(G | C) = 1/5.
    expected = -(math.log2(3 / 8) + math.log2(3 / 6) + math.log2(1 / 5)) / 3
    assert markov_bits(train, test, 1) == pytest.approx(expected)
