"""Inpainting against exact conditional distributions. Goodness of fit is Pearson's test at 1e-4."""

import numpy
import pytest
import torch

import blackout as bo
from blackout.io import write_samples
from blackout.io.observed import region_mask
from blackout.sampling import Step
from blackout.sampling.inpainting import inpainting
from worlds import cube, fit, frequencies, grid, lattice, noise, on_lattice, p_value, random_generator, total_variation

WORLDS = {
    "PureDeath, BinomialBridge": (bo.BinomialBridge(), bo.PureDeath(4)),
    "PureDeath, PosteriorBridge": (bo.PosteriorBridge(), bo.PureDeath(4)),
    "FiniteState, PosteriorBridge": (bo.PosteriorBridge(), bo.FiniteState(random_generator(5))),
    "Absorbing, PosteriorBridge": (bo.PosteriorBridge(), bo.Absorbing(6)),
}
SCHEDULED = bo.PureDeath(4, schedule=bo.Schedule.linear(0.1, 0.2))
CHAIN = bo.Chain(torch.matrix_exp(0.3 * torch.from_numpy(random_generator(5))).numpy())
OBSERVED = torch.tensor([2, 0])
FIRST = torch.tensor([True, False])
LEFT = torch.tensor([True, True, False, False])


def world(process):
    """Two correlated components: the exact denoiser, p(second | first), and p(first)."""
    points, weights = cube(2)
    table = on_lattice(points, weights, process.num_states).reshape(process.num_states, -1)
    return bo.ExactPosterior(process, points, weights), table / table.sum(1, keepdim=True), table.sum(1)


def inpainting_probs(sampler, denoise, process, times, values, rounds):
    """The exact distribution on the lattice for each value of the first, observed component and number of rounds."""
    size, every = process.num_states, torch.arange(process.num_states)
    states, late, early = lattice(size, 2), every.repeat_interleave(size), every.repeat(size)
    end = torch.exp(process.terminal_log_prob(every))
    start = {k: torch.outer(process.probs(torch.tensor([k]), times.t_end)[0], end).flatten() for k in values}
    probs = {(k, r): start[k] for k in values for r in rounds}
    xs = every.reshape(-1, 1, 1).expand(-1, len(states), 2).reshape(-1, 2)
    for s, t in times.backwards():
        log_prob = sampler.step_log_prob(Step.of(denoise, process, s, t), xs, states.repeat(size, 1))
        free = torch.exp(log_prob.reshape(size, len(states), 2)[..., 1]).T  # (joint state at t, second at s)
        one = process.probs(every, float(process.clock_time(t) - process.clock_time(s)))
        forward = torch.kron(one, one)
        for k in values:
            bridge = (early == k).double()
            if float(s) > 0:
                bridge = process.bridge_log_prob(early, torch.full_like(early, k), late, s, t).exp()
            tied = bridge.reshape(size, size)[states[:, 0]]  # (joint state at t, first at s)
            back = (tied.unsqueeze(-1) * free.unsqueeze(1)).flatten(1)
            repeat = forward @ back
            for r in rounds:
                probs[k, r] = probs[k, r] @ back @ torch.linalg.matrix_power(repeat, r)
    return probs


def bias(sampler, process, steps, rounds):
    """The exact total variation from p(second | first), averaged over the first, for each number of rounds."""
    denoise, table, weights = world(process)
    found = inpainting_probs(sampler, denoise, process, grid(process, steps), range(5), rounds)
    distance = {
        (k, r): total_variation(probs.reshape(process.num_states, -1)[k], table[k]) for (k, r), probs in found.items()
    }
    return [sum(float(weights[k]) * distance[k, r] for k in range(5)) for r in rounds]


@pytest.mark.parametrize("name", WORLDS)
def test_error_decreases_with_the_number_of_rounds(name):
    """The numbers of the table in docs/samplers.md; `python tests/test_inpainting.py` prints all of it."""
    plain, some, many = bias(*WORLDS[name], 20, (0, 3, 15))
    assert 0.19 < plain < 0.26
    assert some < 0.65 * plain
    assert many < 0.6 * some


def test_rounds_reduce_the_error_more_than_steps():
    sampler, process = WORLDS["PureDeath, BinomialBridge"]
    assert bias(sampler, process, 20, (3,))[0] < 0.75 * bias(sampler, process, 60, (0,))[0]


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.FiniteState(random_generator(5))], ids=repr)
@pytest.mark.parametrize("rounds", [0, 2])
def test_samples_fit_the_exact_distribution(process, rounds):
    denoise, _, _ = world(process)
    sampler, times = bo.PosteriorBridge(), grid(process, 6)
    probs = inpainting_probs(sampler, denoise, process, times, [2], [rounds])[2, rounds]
    samples = bo.Inpainting(sampler, OBSERVED, FIRST, rounds).sample(denoise, process, times, (4000, 2), seed=1)
    assert p_value(frequencies(samples, 5), probs) > 1e-4


@pytest.mark.parametrize(("sampler", "steps", "bound"), [(bo.PosteriorBridge(), 3, 1e-6), (bo.TauLeaping(), 80, 0.02)])
def test_inpainting_of_masked_labels_is_exact(sampler, steps, bound):
    """From the probabilities of the steps: with one component to sample there is no error but that of the steps."""
    process = bo.Absorbing(6)
    denoise, table, _ = world(process)
    for observed in range(5):
        probs = torch.eye(6, dtype=torch.float64)[5]
        late, early = (torch.stack([torch.full((36,), observed), x.flatten()], -1) for x in lattice(6, 2).T)
        for s, t in grid(process, steps).backwards():
            log_prob = sampler.step_log_prob(Step.of(denoise, process, s, t), early, late)
            probs = probs @ torch.exp(log_prob[:, 1]).reshape(6, 6)
        assert total_variation(probs, table[observed]) < bound


def test_samples_of_masked_labels_differ_from_the_conditional_distribution_by_noise_alone():
    process = bo.Absorbing(6)
    denoise, table, _ = world(process)
    sampler = bo.Inpainting(bo.PosteriorBridge(), OBSERVED, FIRST)
    samples = sampler.sample(denoise, process, grid(process, 3), (4000, 2))
    shares = torch.bincount(samples[:, 1], minlength=6).double() / 4000
    assert total_variation(shares, table[2]) < 3 * noise(table[2], 4000)


def test_observed_labels_are_never_masked():
    process = bo.Absorbing(6)
    for resample in (None, 2):
        sampler = bo.Inpainting(bo.PosteriorBridge(), OBSERVED, FIRST, resample)
        path = sampler.sample(world(process)[0], process, grid(process, 6), (20, 2), trajectory=True)
        assert bool((path[..., 0] == 2).all())
        assert bool((path[0, :, 1] == 5).all())


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.BirthDeath(5, 0.3, 1.0, 1.0), SCHEDULED], ids=repr)
def test_observed_entries_follow_the_forward_process(process):
    """At each time X_t given X_0, whatever the number of rounds."""
    times = bo.ObservationTimes.from_values([0.2, 0.7, 1.5])
    sampler = bo.Inpainting(bo.TauLeaping(corrector_steps=1), torch.tensor([3, 0]), FIRST, 1)
    path = sampler.sample(world(process)[0], process, times, (2000, 2), seed=4, trajectory=True)
    for x, t in zip(path, [1.5, 0.7, 0.2], strict=False):
        assert fit(x[:, 0], process.probs(torch.tensor([3]), t)[0]) > 1e-4
    assert bool((path[-1, :, 0] == 3).all())


@pytest.mark.parametrize(
    ("sampler", "process"),
    [
        (bo.BinomialBridge(corrector_steps=1), bo.PureDeath(4)),
        (bo.Exact(), bo.PureDeath(4)),
        (bo.TauLeaping(), bo.Uniform(5)),
        (bo.PosteriorBridge(), CHAIN),
        (bo.MultistepBridge(), CHAIN),
        (bo.MultistepBridge(corrector_steps=1), bo.PureDeath(4)),
        (bo.PosteriorBridge(), bo.Absorbing(6)),
        (bo.TauLeaping(events="binomial"), SCHEDULED),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_sample_keeps_observed_entries_and_depends_on_seed_and_index_alone(sampler, process):
    denoise, _, _ = world(process)
    times = bo.ObservationTimes.from_values([1, 5])
    observed = torch.stack([torch.arange(9) % 5, torch.arange(9) // 2], -1)
    mask = torch.stack([torch.arange(9) % 2 == 0, torch.arange(9) % 3 == 0], -1)

    def draw(rows, start_index=0, seed=7):
        method, shape = bo.Inpainting(sampler, observed[rows], mask[rows], 1), (len(observed[rows]), 2)
        return method.sample(denoise, process, times, shape, seed=seed, start_index=start_index)

    samples = draw(slice(None))
    assert torch.equal(samples[mask], observed[mask])
    assert torch.equal(draw(slice(4, None), 4), samples[4:])
    assert torch.equal(draw(slice(3, 4), 3), samples[3:4])
    assert not torch.equal(draw(slice(None), seed=8), samples)


def model(process=None):
    x = torch.randint(5, (64, 4), generator=torch.Generator().manual_seed(0))
    return bo.DiffusionModel.for_data(x, process or bo.PureDeath(4), width=8, blocks=1)


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Absorbing(6)], ids=repr)
def test_model_inpaints(process):
    made = model(process)
    observed = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(1))
    options = {"num_steps": 3, "seed": 1, "resample": 1}
    samples = made.sample(7, observed=observed, mask=LEFT, **options)
    assert torch.equal(samples[..., :2], observed[..., :2])
    assert int(samples.max()) <= 4
    assert torch.equal(made.sample(7, observed=observed, mask=LEFT, batch_size=3, **options), samples)
    rest = made.sample(3, observed=observed[4:], mask=LEFT.expand(3, 4), start_index=4, **options)
    assert torch.equal(rest, samples[4:])
    assert torch.equal(made.sample(2, observed=observed[0], mask=LEFT, **options)[:1], samples[:1])
    path = made.sample(7, observed=observed, mask=LEFT, trajectory=True, batch_size=4, **options)
    assert torch.equal(path[-1], samples)


def test_shards_keep_the_label_and_the_observed_entries_of_each_sample(tmp_path):
    x = torch.randint(5, (64, 4), generator=torch.Generator().manual_seed(0))
    made = bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, blocks=1, num_classes=3)
    options = {
        "num_steps": 2,
        "label": torch.arange(5) % 3,
        "guidance": 2.0,
        "observed": x[:5],
        "mask": LEFT,
        "resample": 1,
    }
    samples = made.sample(5, **options)
    for name, observed in (("each.npz", x[:5]), ("all.npz", x[0])):
        write_samples(made, tmp_path / name, 5, shard=2, **options | {"observed": observed})
    assert numpy.array_equal(numpy.load(tmp_path / "each.npz")["x"], samples.numpy())
    assert numpy.array_equal(numpy.load(tmp_path / "all.npz")["x"][0], samples[0].numpy())


def test_empty_mask_gives_an_unconditional_sample():
    made, nothing = model(), torch.zeros(4, dtype=torch.bool)
    plain = made.sample(3, num_steps=3)
    assert torch.equal(made.sample(3, num_steps=3, observed=torch.zeros(4, dtype=torch.uint8), mask=nothing), plain)
    assert made.sample(0, num_steps=3, observed=torch.zeros(4).long(), mask=~nothing).shape == (0, 4)


def test_entries_outside_the_mask_may_hold_anything():
    mask = torch.tensor([True, False, False, True])
    sampler = bo.Inpainting(bo.BinomialBridge(), torch.tensor([3, -1, 99, 0]), mask, 0)
    sampler.check(bo.PureDeath(4))
    assert torch.equal(sampler.observed, torch.tensor([3, 0, 0, 0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observed": torch.zeros(2, 2).long()}, r"observed must have shape \(4,\) or \(3, 4\), got \(2, 2\)"),
        ({"observed": torch.zeros(4)}, "observed must hold integers, got dtype torch.float32"),
        ({"observed": torch.full((4,), 5)}, "observed must be at most 4, got 5"),
        ({"observed": torch.full((4,), -1)}, "observed must not be negative, got -1"),
        ({"observed": None}, "observed and mask go together, got mask alone"),
        ({"mask": None}, "observed and mask go together, got observed alone"),
        ({"observed": None, "mask": None, "resample": 2}, "observed and mask go together, got resample alone"),
        ({"mask": torch.ones(4, dtype=torch.bool)}, "mask must leave entries to sample, got all 12 entries observed"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, r"mask must have shape .* got \(3,\)"),
        ({"mask": torch.ones(4).long()}, "mask must hold booleans, got dtype torch.int64"),
        ({"mask": "left"}, "mask must be a tensor of booleans, got str"),
        ({"resample": -1}, "resample must be at least 0, got -1"),
        ({"resample": 1.5}, "resample must be an integer, got 1.5"),
    ],
)
def test_invalid_observed_entries_are_rejected(changes, message):
    options = {"observed": torch.zeros(4).long(), "mask": LEFT, **changes}
    with pytest.raises(ValueError, match=message):
        model().sample(3, num_steps=2, **options)


def test_inpainting_rejects_masks_unfit_samplers_and_bounds():
    sampler = inpainting(bo.PosteriorBridge(), bo.Absorbing(6), (3, 2), OBSERVED, FIRST, None)
    process = bo.Uniform(5)
    at = Step(bo.Absorbing(6), None, torch.tensor(0.1), torch.tensor(1.0))
    with pytest.raises(ValueError, match="has no steps to bound"):
        sampler.step_log_prob(at, OBSERVED, OBSERVED)
    with pytest.raises(ValueError, match="observed must not hold the mask itself, got 5"):
        inpainting(bo.PosteriorBridge(), bo.Absorbing(6), (3, 2), torch.tensor([5, 0]), FIRST, None)
    with pytest.raises(ValueError, match="process must be PureDeath"):
        inpainting(bo.BinomialBridge(), bo.Uniform(5), (3, 2), OBSERVED, FIRST, None)
    with pytest.raises(ValueError, match=r"mask must have a shape that goes with \(2,\)"):
        bo.Inpainting(bo.PosteriorBridge(), OBSERVED, torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match=r"observed must have a shape that goes with samples \(4, 3\), got \(2,\)"):
        bo.Inpainting(bo.PosteriorBridge(), OBSERVED, FIRST).sample(print, process, grid(process, 2), (4, 3))


def test_masks_of_image_halves():
    assert region_mask("left", (3, 2, 5))[0].tolist() == [[True, True, False, False, False]] * 2
    assert torch.equal(region_mask("left", (1, 5, 5)), ~region_mask("right", (1, 5, 5)))
    assert torch.equal(region_mask("top", (1, 5, 5)), ~region_mask("bottom", (1, 5, 5)))
    assert region_mask("centre", (1, 4, 4)).sum() == 4


if __name__ == "__main__":
    rounds = (0, 1, 3, 7, 15, 31)
    for name, (sampler, process) in WORLDS.items():
        for steps in (20, 80):
            print(f"| {name} | {steps} |", " | ".join(f"{b:.3f}" for b in bias(sampler, process, steps, rounds)), "|")
