"""Networks against scipy's filters and published sizes, heads against brute-force Bayes."""

import copy
import math

import numpy
import pytest
import torch
import torch.nn.functional as F
from scipy import signal, special, stats
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from blackout.loss import LikelihoodLoss
from blackout.network import (
    HEADS,
    MLP,
    BoundedLogitHead,
    GammaPoissonHead,
    MLPConfig,
    NCSNpp,
    Predictor,
    SoftplusHead,
    UNetConfig,
)
from blackout.network.build import build_head, build_network
from blackout.network.head import Observation
from blackout.network.layers import Attention, Norm, fir_down, fir_smooth, fir_up, positional_embedding, waves
from blackout.network.mean_heads import MeanHead
from blackout.network.ncsnpp import PRESETS
from blackout.process import PureDeath
from blackout.times import ObservationTimes

KERNEL = numpy.array([1.0, 3.0, 3.0, 1.0]) / 8


def tiny(**more: object) -> UNetConfig:
    return UNetConfig(**{**PRESETS["tiny"], "width": 8, "blocks": 1, "channels": 1, "resolution": 8, **more})


def fresh(kind: str, size: int, **more: object) -> tuple[nn.Module, Tensor]:
    """A small network, newly drawn, and `size` inputs for it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "MLP":
            return MLP(MLPConfig(features=8, width=16, **more)), normal(size, 8)
        return NCSNpp(tiny(**more)), normal(size, 1, 8, 8)


def shaken(kind: str, size: int, **more: object) -> tuple[nn.Module, Tensor]:
    """The same with weights that do something: fresh ones give almost zero."""
    network, x = fresh(kind, size, **more)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return network.eval(), x


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def num_weights(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_paper_preset_has_62_693_251_weights_and_21_75_gflop() -> None:
    with torch.device("meta"):
        network = NCSNpp(UNetConfig(**PRESETS["paper"])).eval()
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            out = network(torch.empty(1, 3, 32, 32), torch.zeros(1))
    assert num_weights(network) == 62_693_251
    assert out.shape == (1, 3, 32, 32)
    assert counter.get_total_flops() / 1e9 == pytest.approx(21.75, rel=0.005)


def test_queries_keys_and_values_start_with_a_tenth_of_the_usual_variance() -> None:
    weight = Attention(128).qkv.weight.detach()
    assert float(weight.var()) == pytest.approx(0.1 / 128, rel=0.02)
    assert float(weight.abs().max()) <= math.sqrt(3 * 0.1 / 128)


def test_the_small_preset_has_between_10_and_16_5_million_weights() -> None:
    with torch.device("meta"):
        process = PureDeath(255)
        head = build_head("bounded-logit", torch.zeros(2, 3, 32, 32, dtype=torch.uint8), process, "small")
        network = build_network((3, 32, 32), head, process, preset="small")
    assert 10e6 < num_weights(network) < 16.5e6


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("channels", "resolution"), [(3, 64), (1, 32)])
def test_every_preset_takes_larger_images_and_single_channels(preset: str, channels: int, resolution: int) -> None:
    with torch.device("meta"):
        network = NCSNpp(UNetConfig(channels=channels, resolution=resolution, **PRESETS[preset]))
        predictor = Predictor(network, SoftplusHead(torch.ones(1), torch.ones(1), 255), PureDeath(255))
        x = torch.empty(2, channels, resolution, resolution)
        assert predictor.posterior(x, torch.ones(2)).difference().shape == x.shape


def test_outputs_multiplies_the_channels() -> None:
    assert NCSNpp(tiny(outputs=3))(normal(2, 1, 8, 8), torch.zeros(2)).shape == (2, 3, 8, 8)


def test_patches_of_pixels_are_channels_for_the_network() -> None:
    network = NCSNpp(tiny(patch=2, outputs=2, inputs=2, pyramid=1, num_classes=0))
    assert network.first.weight.shape[1] == 2 * 4
    assert network.pyramid[0].weight.shape[1] == 1 * 4
    assert network.size_unit == 4
    x, time = normal(1, 2, 8, 8), torch.zeros(1)
    assert network(x, time).shape == (1, 2, 8, 8)
    wider = network.with_inputs(1)  # further inputs follow the others
    assert wider.first.weight.shape[1] == 3 * 4
    assert torch.equal(wider.first.weight[:, :8], network.first.weight)
    with pytest.raises(ValueError, match="resolution must be divisible by 16"):
        tiny(patch=8)
    with pytest.raises(ValueError, match="width must be even and at least 4, got 3"):
        tiny(width=3)


def test_a_resolution_that_cannot_be_halved_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"resolution must be divisible by 8, .* got 28"):
        UNetConfig(resolution=28)


@pytest.mark.parametrize("kind", ["NCSNpp", "MLP"])
def test_the_output_is_near_zero_at_the_start(kind: str) -> None:
    network, x = fresh(kind, 4)
    assert network(x, torch.linspace(0, 1000, 4)).abs().max() < 1e-3


@pytest.mark.parametrize("kind", ["NCSNpp", "MLP"])
def test_the_class_changes_the_output_and_no_class_is_the_extra_one(kind: str) -> None:
    network, x = shaken(kind, 1, num_classes=3)
    outputs = [network(x, torch.zeros(1), torch.tensor([label])) for label in range(4)]
    assert all((a - b).abs().max() > 1e-3 for i, a in enumerate(outputs) for b in outputs[:i])
    torch.testing.assert_close(network(x, torch.zeros(1)), outputs[3])


@pytest.mark.parametrize("kind", ["NCSNpp", "MLP"])
def test_each_row_depends_on_its_own_state_and_time_alone(kind: str) -> None:
    network, x = shaken(kind, 3)
    position = torch.tensor([0.0, 300.0, 1000.0])
    alone = torch.cat([network(x[i : i + 1], position[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(network(x, position), alone, rtol=1e-4, atol=1e-5)
    assert (network(x, position.flip(0)) - alone)[0].abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["NCSNpp", "MLP"])
def test_bfloat16_input_gives_close_bfloat16_output(kind: str) -> None:
    network, x = shaken(kind, 4)
    position = torch.linspace(0, 1000, 4)
    wide, narrow = network(x, position), network(x.bfloat16(), position)
    assert wide.dtype is torch.float32
    assert narrow.dtype is torch.bfloat16
    assert (narrow.float() - wide).norm() < 0.03 * wide.norm()


@pytest.mark.parametrize("side", [4, 32])
def test_normalisation_and_attention_in_bfloat16_round_but_do_not_differ(side: int) -> None:
    """Against torch's functions in double precision; 4e-3 is a rounding of bfloat16."""
    x = normal(2, 32, side, side, seed=1).bfloat16()
    shift, norm, attention = normal(2, 32, seed=2).bfloat16(), Norm(32), Attention(32)
    wanted = F.group_norm((x + shift[:, :, None, None]).double(), norm.groups, eps=1e-6)
    found = norm(x, shift, silu=True)
    assert found.dtype is torch.bfloat16
    assert (found - F.silu(wanted)).norm() < 4e-3 * F.silu(wanted).norm()
    x = x[:, :, :4, :4]
    torch.nn.init.normal_(attention.out.weight, std=0.2, generator=torch.Generator().manual_seed(3))
    wide = copy.deepcopy(attention).double()
    assert (attention(x) - wide(x.double())).norm() < 8e-3 * wide(x.double()).norm()


@pytest.mark.parametrize("kind", ["NCSNpp", "MLP"])
def test_dropout_acts_in_training_only(kind: str) -> None:
    network, x = shaken(kind, 2, dropout=0.5)
    assert torch.equal(network(x, torch.zeros(2)), network(x, torch.zeros(2)))
    network.train()
    with torch.random.fork_rng():
        assert not torch.equal(network(x, torch.zeros(2)), network(x, torch.zeros(2)))


def fir(x: numpy.ndarray, up: int, down: int, gain: float, where: slice) -> numpy.ndarray:
    """scipy's filter along both axes, gain for each; `where` cuts the full convolution to the padding in use."""
    for axis in (-1, -2):
        x = numpy.moveaxis(signal.upfirdn(gain * KERNEL, x, up, down, axis=axis), axis, -1)[..., where]
        x = numpy.moveaxis(x, -1, axis)
    return x


# Outputs of a full convolution begin with the filter three before the signal: padding n begins with output 3 - n.
@pytest.mark.parametrize(
    ("function", "up", "down", "gain", "where"),
    [(fir_down, 1, 2, 1.0, slice(1, 6)), (fir_up, 2, 1, 2.0, slice(1, 21)), (fir_smooth, 1, 1, 1.0, slice(1, 12))],
)
def test_resampling_is_scipys_filter(function: object, up: int, down: int, gain: float, where: slice) -> None:
    x = normal(2, 3, 10, 10).double()
    torch.testing.assert_close(function(x), torch.from_numpy(fir(x.numpy(), up, down, gain, where)))


def test_the_positional_embedding_is_sines_and_cosines_of_falling_frequencies() -> None:
    position = torch.tensor([0.0, 1.0, 500.0])
    frequency = 10_000 ** -(numpy.arange(8) / 7)
    angle = position.numpy()[:, None] * frequency
    expected = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], 1)
    numpy.testing.assert_allclose(positional_embedding(position, 16).numpy(), expected, atol=1e-4)


MEAN_HEADS = [name for name in HEADS if HEADS[name].answers == "mean"]


def zeros_for(head: MeanHead, xt: Tensor) -> Tensor:
    """Raw output zero for these states."""
    return torch.zeros(*xt.shape, head.num_outputs)


def posterior_mean(log_prior: numpy.ndarray, xt: int, p: float) -> float:
    """E[X_0 - X_t | X_t = xt] by Bayes: X_t | X_0 ~ Binomial(X_0, p)."""
    x0 = numpy.arange(len(log_prior))
    probs = special.softmax(log_prior + stats.binom.logpmf(xt, x0, p))
    return float(((x0 - xt) * probs).sum())


@pytest.mark.parametrize("max_count", [1, 7, 255])
@pytest.mark.parametrize("q", [0.05, 0.6])
def test_bounded_logit_at_zero_is_the_posterior_mean_of_independent_units(max_count: int, q: float) -> None:
    mean, std = torch.tensor(max_count * q), torch.tensor(math.sqrt(max_count * q * (1 - q)))
    head = BoundedLogitHead(mean, std, max_count)
    prior = stats.binom.logpmf(numpy.arange(max_count + 1), max_count, q)
    for logit_p in (-6.0, -1.0, 0.0, 2.0, 6.0):
        p = 1 / (1 + math.exp(-logit_p))
        for xt in sorted({0, max_count // 2, max_count - 1}):
            y = head.predict(torch.zeros(1, 1), torch.tensor([float(xt)]), torch.tensor([logit_p]))
            assert float(y) == pytest.approx(posterior_mean(prior, xt, p), rel=1e-4)


def test_bounded_logit_stays_between_zero_and_the_missing_units() -> None:
    head = BoundedLogitHead(torch.tensor(100.0), torch.tensor(50.0), 255)
    xt, raw = torch.meshgrid(torch.arange(256.0), torch.tensor([-200.0, -3.0, 0.0, 3.0, 200.0]), indexing="ij")
    for logit_p in (-35.0, 0.0, 35.0):
        y = head.predict(raw.unsqueeze(-1), xt, torch.tensor(logit_p))
        assert bool(((y >= 0) & (y <= 255 - xt)).all())


def test_bounded_logit_with_one_unit_is_the_posterior_of_masked_diffusion() -> None:
    q, head = 0.3, BoundedLogitHead(torch.tensor(0.3), torch.tensor(0.3 * 0.7).sqrt(), 1)
    logit_p = torch.linspace(-8, 8, 33)
    p = torch.sigmoid(logit_p)
    masked = head.predict(torch.zeros(33, 1), torch.zeros(33), logit_p)
    torch.testing.assert_close(masked, q * (1 - p) / (1 - q * p))
    assert bool((head.predict(torch.zeros(33, 1), torch.ones(33), logit_p) == 0).all())


@pytest.mark.parametrize(("mean", "shape"), [(0.5, 0.3), (4.0, 2.0), (20.0, 10.0)])
def test_gamma_poisson_at_zero_is_the_posterior_mean_under_a_negative_binomial(mean: float, shape: float) -> None:
    head = GammaPoissonHead(torch.tensor(mean), torch.tensor(mean + mean**2 / shape).sqrt())
    prior = stats.nbinom.logpmf(numpy.arange(3000), shape, shape / (shape + mean))
    for logit_p in (-4.0, 0.0, 3.0):
        for xt in (0, 1, 12):
            y = head.predict(torch.zeros(1, 2), torch.tensor([float(xt)]), torch.tensor([logit_p]))
            expected = posterior_mean(prior, xt, 1 / (1 + math.exp(-logit_p)))
            assert float(y) == pytest.approx(expected, rel=1e-3)


def test_gamma_poisson_outputs_change_the_mean_and_the_shape_of_the_negative_binomial() -> None:
    mean, shape = 4.0, 2.0
    head = GammaPoissonHead(torch.tensor(mean), torch.tensor(mean + mean**2 / shape).sqrt())
    other, firmer = mean * math.exp(0.7), shape * math.exp(1.1)
    prior = stats.nbinom.logpmf(numpy.arange(3000), firmer, firmer / (firmer + other))
    for xt in (0, 1, 12):
        y = head.predict(torch.tensor([[0.7, 1.1]]), torch.tensor([float(xt)]), torch.tensor([0.5]))
        assert float(y) == pytest.approx(posterior_mean(prior, xt, 1 / (1 + math.exp(-0.5))), rel=1e-3)


def test_softplus_shows_the_network_the_state_less_half_the_surviving_range() -> None:
    head = SoftplusHead(torch.tensor(90.0), torch.tensor(40.0), 255)
    xt, logit_p = torch.arange(256.0), torch.tensor(1.0)
    torch.testing.assert_close(head.scale(xt, logit_p), xt - 127.5 / (1 + math.exp(-1.0)))
    raw = normal(256)
    torch.testing.assert_close(head.predict(raw.unsqueeze(-1), xt, logit_p), torch.log1p(torch.exp(raw)))


def test_bounded_logit_shows_the_network_mean_zero_and_variance_one_at_every_time() -> None:
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randint(0, 256, (200_000,), generator=generator).double()
    head = BoundedLogitHead(x0.mean(), x0.std(), 255)
    for logit_p in (-4.0, 0.0, 4.0):
        xt = torch.binomial(x0, torch.sigmoid(torch.tensor(logit_p).double()).expand_as(x0), generator=generator)
        shown = head.scale(xt.float(), torch.tensor(logit_p))
        assert float(shown.mean()) == pytest.approx(0.0, abs=0.02)
        assert float(shown.std()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", MEAN_HEADS)
@pytest.mark.parametrize("mean", [0.0, 1e-3, 90.0, 255.0])
def test_heads_are_finite_at_all_times_and_for_constant_channels(name: str, mean: float) -> None:
    head = HEADS[name](torch.tensor(mean), torch.tensor(1e-6), 255)
    logit_p = torch.linspace(-35, 35, 141).unsqueeze(1)
    xt = torch.arange(256.0).expand(141, -1)
    assert bool(torch.isfinite(head.scale(xt, logit_p)).all())
    y = head.predict(zeros_for(head, xt), xt, logit_p)
    assert bool((torch.isfinite(y) & (y >= 0)).all())


@pytest.mark.parametrize("name", MEAN_HEADS)
def test_gradients_are_finite_where_nothing_is_missing(name: str) -> None:
    head = HEADS[name](torch.tensor([2.0]), torch.tensor([1.0]), 4)
    raw = zeros_for(head, torch.zeros(3, 2)).requires_grad_()
    x0, t = torch.tensor([[4, 4], [4, 4], [0, 4]]), torch.tensor([1e-7, 1.0, 15.0], dtype=torch.float64)
    xt = torch.tensor([[4, 4], [4, 3], [0, 0]])
    logit_p = -torch.log(torch.expm1(t)).float().unsqueeze(1)
    loss = LikelihoodLoss()(head.predict(raw, xt.float(), logit_p), x0, xt, t / 2, t)
    loss.sum().backward()
    assert bool(torch.isfinite(loss).all())
    assert bool(torch.isfinite(raw.grad).all())


def test_bounded_logit_needs_a_largest_count() -> None:
    with pytest.raises(ValueError, match="max_count"):
        BoundedLogitHead(torch.ones(1), torch.ones(1))


class Raw(MeanHead):
    """A head whose prediction is the raw output."""

    def scale(self, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        return xt

    def predict(self, raw: Tensor, xt: Tensor, logit_p: Tensor) -> Tensor:
        return raw.squeeze(-1)


class Position(nn.Module):
    """A network that shows which position it is given."""

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        return position.reshape(-1, 1).expand_as(x)


def shown_position(time_input: str, grid: Tensor, t: Tensor) -> Tensor:
    process = PureDeath()
    predictor = Predictor(Position(), Raw(torch.ones(1), torch.ones(1)), process, time_input, grid)
    return predictor(Observation(process, torch.zeros(len(t), 1, dtype=torch.long), t))[:, 0, 0]


def test_time_input_by_index_is_the_place_on_the_grid() -> None:
    values = ObservationTimes.fisher(60).values
    position = shown_position("index", values, values)
    torch.testing.assert_close(position, torch.arange(60.0), rtol=0, atol=1e-3)
    chosen = torch.tensor([0, 10, 30, 59])
    position = shown_position("index", values, values[chosen])
    torch.testing.assert_close(position, chosen.float(), rtol=0, atol=1e-3)


def test_time_input_by_logit_runs_from_0_to_1000_over_the_papers_grid() -> None:
    values = torch.nn.functional.softplus(torch.tensor([-15.0, -14.0, -13.0], dtype=torch.float64))
    expected = torch.tensor([0.0, 1000 / 30, 2000 / 30])
    torch.testing.assert_close(shown_position("logit", values, values), expected, rtol=1e-4, atol=1e-2)


def test_time_input_by_index_without_a_grid_is_rejected() -> None:
    with pytest.raises(ValueError, match="grid"):
        Predictor(Position(), SoftplusHead(torch.ones(1), torch.ones(1)), PureDeath(), "index")


def test_waves_are_the_sines_and_cosines_of_the_count() -> None:
    counts = torch.arange(12.0).reshape(2, 3, 2, 1)
    shown = waves(counts, (4.0, 16.0))
    assert shown.shape == (2, 12, 2, 1)
    torch.testing.assert_close(shown[:, :3], torch.sin(counts * torch.pi / 2), rtol=0, atol=1e-5)
    torch.testing.assert_close(shown[:, 9:], torch.cos(counts * torch.pi / 8), rtol=0, atol=1e-5)


def image_predictor() -> Predictor:
    """For grey images, with weights that do something."""
    process, statistics = PureDeath(255), (torch.full((1, 1, 1), 40.0), torch.full((1, 1, 1), 20.0))
    head = BoundedLogitHead(*statistics, 255)
    predictor = Predictor(build_network((1, 8, 8), head, process, width=8, blocks=1, num_classes=3), head, process)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in predictor.network.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return predictor.eval()


def test_single_units_are_resolved_in_half_precision() -> None:
    """In bfloat16 the standardised counts 252 and 253 are one number: the first layer gets them in float32."""
    predictor = image_predictor()
    seen: list[Tensor] = []
    predictor.network.first.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    predictor.network.to(torch.bfloat16)
    predictor.dtype = torch.bfloat16
    xt, t = torch.tensor([252, 253]).reshape(2, 1, 1, 1).expand(2, 1, 8, 8), torch.tensor([1e-6, 1e-6])
    raw = predictor(Observation(predictor.process, xt, t))
    shown = seen[0].flatten(1)
    assert shown[0, 0] != shown[1, 0]
    assert shown.bfloat16()[0, 0] == shown.bfloat16()[1, 0]
    assert raw.dtype == torch.bfloat16


def test_the_shape_is_checked_with_the_input_that_the_network_gets() -> None:
    dtypes = []

    class Exact(NCSNpp):
        def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None, dtype: object = None) -> Tensor:
            dtypes.append((x.dtype, dtype))
            return super().forward(x, position, label, dtype)

    head = build_head("bounded-logit", torch.zeros(1, 1, 8, 8, dtype=torch.int64), PureDeath(9), "tiny")
    with torch.device("meta"):
        predictor = Predictor(Exact(tiny()), head, PureDeath(9))
    predictor.dtype = torch.bfloat16
    predictor.check_shape((1, 8, 8))
    assert dtypes == [(torch.float32, torch.bfloat16)]


def test_a_network_in_half_precision_is_compiled_as_one_graph() -> None:
    network, x = shaken("NCSNpp", 2, num_classes=3)
    network.to(torch.bfloat16)
    arguments = (x, torch.tensor([10.0, 900.0]), torch.tensor([0, 3]), torch.bfloat16)
    graph = torch.compile(network, backend="eager", fullgraph=True)
    assert torch.equal(graph(*arguments), network(*arguments))


def test_large_batches_of_images_pass_in_pieces_without_gradient() -> None:
    predictor, generator = image_predictor(), torch.Generator().manual_seed(0)
    sizes: list[int] = []
    predictor.network.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    xt = torch.randint(0, 256, (11, 1, 64, 64), generator=generator)
    for label in (None, torch.arange(11) % 4):
        observation = Observation(predictor.process, xt, torch.linspace(0.1, 3.0, 11), label=label)
        whole = predictor(observation)
        with torch.no_grad():
            torch.testing.assert_close(predictor(observation), whole, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        predictor.network.train()  # masks of dropout belong to whole batches
        predictor(observation)
    assert sizes == 2 * [11, 4, 4, 3] + [11]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "shifted", "silu"),
    [((8, 128, 32, 32), True, True), ((8, 384, 16, 16), False, True), ((3, 24, 6, 6), True, False)],
)
def test_the_fused_norm_is_torchs_group_norm(shape: tuple[int, ...], shifted: bool, silu: bool) -> None:
    """Values and all four gradients, against double precision."""
    norm = Norm(shape[1]).cuda()
    norm.weight.data, norm.bias.data = normal(shape[1]).cuda() + 1, normal(shape[1], seed=1).cuda()
    x = normal(*shape, seed=2).cuda().bfloat16().contiguous(memory_format=torch.channels_last).requires_grad_()
    shift = normal(*shape[:2], seed=3).cuda().bfloat16().requires_grad_() if shifted else None
    leaves = [norm.weight, norm.bias, x, *([shift] if shifted else [])]
    given = norm(x, shift, silu)
    ahead = torch.randn_like(given)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    z = F.group_norm(exact[2] + (exact[3][:, :, None, None] if shifted else 0), norm.groups, *exact[:2], eps=1e-6)
    expected = F.silu(z) if silu else z
    pairs = zip(
        [given, *torch.autograd.grad(given, leaves, ahead)],
        [expected, *torch.autograd.grad(expected, exact, ahead.double())],
        strict=True,
    )
    for ours, theirs in pairs:
        assert (ours - theirs).norm() < 4e-3 * theirs.norm()  # a rounding of bfloat16
