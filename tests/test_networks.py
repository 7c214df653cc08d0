"""The networks: the paper's sizes, scaling by bounds or by data, batch norm statistics over all rows."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from pidm_nav.agents import PIDM, PIDMConfig
from pidm_nav.agents.bc import BC
from pidm_nav.agents.networks import Adam, Encoder, Head, Scale, recompute_batchnorm

STATE = spaces.Box(-32, 832, (14,), np.float32)
ACTION = spaces.Box(-1, 1, (2,), np.float32)


def linear_shapes(module: torch.nn.Module) -> list[tuple[int, int]]:
    return [(each.in_features, each.out_features) for each in module.modules() if isinstance(each, torch.nn.Linear)]


def test_bc_has_the_papers_layers() -> None:
    agent = BC(STATE, ACTION)
    assert linear_shapes(agent) == [(14, 512), (512, 1024), (1024, 256), (256, 256), (256, 2)]
    assert isinstance(agent.encoder.norm, torch.nn.BatchNorm1d)


def test_pidm_reads_both_embeddings_and_the_horizon() -> None:
    assert linear_shapes(PIDM(STATE, ACTION).idm.head) == [(512, 256), (256, 2)]
    assert linear_shapes(PIDM(STATE, ACTION, PIDMConfig(horizons=(1, 6, 11))).idm.head) == [(515, 256), (256, 2)]


def test_an_encoder_passed_in_is_used() -> None:
    encoder = Encoder(14, (8, 4))
    agent = PIDM(STATE, ACTION, encoder=encoder)
    assert agent.idm.encoder is encoder
    assert linear_shapes(agent.idm.head)[0] == (8, 256)


def test_scale_maps_bounds_to_plus_minus_one_and_back() -> None:
    scale = Scale(spaces.Box(np.float32([-32, 0]), np.float32([832, 1]), dtype=np.float32))
    raw = torch.tensor([[-32.0, 0.0], [832.0, 1.0], [400.0, 0.5]])
    scaled = scale(raw)
    assert torch.allclose(scaled, torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]))
    assert torch.allclose(scale.inverse(scaled), raw)


def test_unbounded_features_are_standardised_by_the_data() -> None:
    low, high = np.float32([-np.inf, -3.4e38, -2, 0]), np.float32([np.inf, 3.4e38, 2, np.inf])
    scale = Scale(spaces.Box(low, high, dtype=np.float32))
    rng = np.random.default_rng(0)
    values = np.stack(
        [rng.normal(5, 3, 500), rng.normal(-1, 0.1, 500), rng.uniform(-2, 2, 500), np.full(500, 7.0)], axis=1
    ).astype(np.float32)
    scale.fit(values)
    scaled = scale(torch.tensor(values)).numpy()
    assert np.allclose(scaled[:, :2].mean(axis=0), 0, atol=1e-4)
    assert np.allclose(scaled[:, :2].std(axis=0), 1, atol=1e-3)
    assert np.allclose(scaled[:, 2], values[:, 2] / 2)
    assert np.allclose(scaled[:, 3], 0)  # constant: finite


def test_reach_spreads_positions_but_not_flags_and_constants_vanish() -> None:
    scale = Scale(spaces.Box(np.float32([-32, 0, 0, 0]), np.float32([832, 800, 1, 800]), dtype=np.float32), reach=8)
    values = np.float32([[-32, 70, 0, 0], [832, 70, 1, 800]])
    scale.fit(values, flags=(2,))
    assert np.allclose(scale(torch.tensor(values)).numpy(), [[-8, 0, -1, -8], [8, 0, 1, 8]])


def test_head_stays_inside_the_action_range() -> None:
    outputs = Head(4, 2)(1e4 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0)))
    assert (outputs.abs() <= 1).all()


@pytest.mark.parametrize("fused", [True, False])
def test_adam_takes_the_steps_of_torch_s_own(fused: bool) -> None:
    made = []
    for own in (True, False):
        rng = torch.Generator().manual_seed(0)
        parameters = [nn.Parameter(torch.randn(shape, generator=rng)) for shape in ((3, 4), (4,), (2,))]
        parameters[0].grad = torch.ones(3, 4) if own else None
        optimizer = Adam(parameters, fused) if own else torch.optim.Adam(parameters, fused=fused)
        assert all(parameter.grad is None for parameter in parameters), "one that it came with is forgotten"
        for step in range(5):
            for parameter in parameters[: 2 + step % 2]:  # the last one has no gradient in every other step
                parameter.grad = torch.randn(parameter.shape, generator=rng)
            if isinstance(optimizer, Adam):
                optimizer.step(0.1 * step)
                assert all(parameter.grad is None for parameter in parameters)
            else:
                optimizer.param_groups[0]["lr"] = 0.1 * step
                optimizer.step()
                optimizer.zero_grad()
        made.append(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    assert torch.equal(*made)


@pytest.mark.parametrize("sizes", [(4096, 1), (4096, 630), (3, 3, 1), (1,)])
def test_batchnorm_statistics_weigh_rows_not_batches(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    encoder = Encoder(2, (4, 3))
    batches = [torch.randn(size, 2) + index for index, size in enumerate(sizes)]
    recompute_batchnorm(encoder, lambda: batches)
    with torch.no_grad():
        inputs = encoder.layers(torch.cat(batches)).double()
    torch.testing.assert_close(encoder.norm.running_mean.double(), inputs.mean(dim=0), rtol=1e-5, atol=1e-6)
    variance = inputs.var(dim=0) if len(inputs) > 1 else torch.zeros(3).double()
    torch.testing.assert_close(encoder.norm.running_var.double(), variance, rtol=1e-5, atol=1e-6)


def test_each_of_several_batchnorms_has_the_statistics_of_its_own_inputs() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4))
    states = 5 + 2 * torch.randn(500, 3)
    recompute_batchnorm(network, lambda: torch.split(states, 300))
    with torch.no_grad():
        outputs = network(states)
    torch.testing.assert_close(outputs.mean(dim=0), torch.zeros(4), rtol=0, atol=1e-4)
    torch.testing.assert_close(outputs.var(dim=0), torch.ones(4), rtol=1e-3, atol=1e-3)
