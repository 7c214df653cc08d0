"""Fit: a loop of one's own trains what `train` trains, a run that was stopped goes on, and PPO can take turns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env

from pidm_nav.agents import (
    BC,
    PIDM,
    Agent,
    Batch,
    Fit,
    Sampling,
    TrainConfig,
    TrainingData,
    choose_preset,
    load_agent,
    train,
)
from pidm_nav.agents.agent import make_agent
from pidm_nav.agents.registry import AGENTS, register
from pidm_nav.agents.sb3 import to_ppo
from pidm_nav.agents.train import dataset_spaces
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.random_play import collect_random_play

TINY: dict[str, Any] = {"steps": 40, "batch_size": 32, "encoder_sizes": (16, 16), "head_sizes": (16,)}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    "averaged": ("bc", {"average": 0.9, "gradient_clip": 0.5}),
    "all the data": ("bc", {"batch_size": 10_000, "recompute_batchnorm": False}),
    "pidm": ("pidm", {"horizons": (1, 3)}),
    "windows": ("pidm", {"window": 4}),
    "delta-pidm": ("delta-pidm", {}),
    "end to end": ("delta-pidm", {"predictor": "learned(steps=5)", "end_to_end": True}),
    "predicted": ("pidm", {"train_on_predicted": True}),
    "chunking": ("chunking", {"chunk": 3}),
    "diffusion": ("diffusion", {"chunk": 3}),
    "corrective-bc": ("corrective-bc", {}),
    "recurrent-bc": ("recurrent-bc", {"sequence": 4}),
    "recurrent-pidm": ("recurrent-pidm", {"sequence": 4}),
}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3, max_steps=60)


def begin(name: str, data: DemoDataset | TrainingData, **settings: Any) -> Fit:
    demos = data if isinstance(data, DemoDataset) else data.demos
    preset = choose_preset(name, demos, **{**TINY, **settings})
    agent = make_agent(AGENTS[name], dataset_spaces(demos), preset.options, seed=preset.training.seed)
    return Fit(agent, data, preset.training)


def take_steps(run: Fit, until: int | None = None) -> Fit:
    for batch in run.batches():
        if run.steps == until:
            break
        run.step(run.agent.loss(batch, run.rng))
    return run


def assert_same(one: Agent, other: Agent) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return KINDS[request.param]


def test_a_loop_of_ones_own_gives_the_weights_of_train(kind: tuple[str, dict[str, Any]], dataset: DemoDataset) -> None:
    name, settings = kind
    run = take_steps(begin(name, dataset, **settings))
    agent = run.finish()
    trained = train(name, dataset, **{**TINY, **settings})
    assert_same(agent, trained)
    assert agent is run.agent and run.steps == TINY["steps"] and not agent.training
    observations = dataset[0].observations[::9]
    np.testing.assert_array_equal(agent.predict(observations)[0], trained.predict(observations)[0])


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped(
    kind: tuple[str, dict[str, Any]], dataset: DemoDataset
) -> None:
    name, settings = kind
    first = take_steps(begin(name, dataset, **settings), until=17)
    state = {key: tensor.clone() for key, tensor in first.state().items()}
    first.agent.predict(dataset[0].observations)  # and what is done in between does not matter
    second = begin(name, dataset, **settings)
    second.resume(state)
    assert second.steps == 17
    assert_same(take_steps(second).finish(), take_steps(begin(name, dataset, **settings)).finish())


def test_other_data_for_single_parts(dataset: DemoDataset) -> None:
    extra, played = collect(AStarExpert("four-room"), "four-room", 1, seed=9), collect_random_play("four-room", 200)
    run = take_steps(begin("delta-pidm", TrainingData(dataset, [extra], [played])))
    assert_same(run.finish(), train("delta-pidm", dataset, predictor_data=extra, idm_data=played, **TINY))


def test_the_state_of_another_run_is_refused(dataset: DemoDataset) -> None:
    state = take_steps(begin("bc", dataset), until=3).state()
    for name, settings in (
        ("pidm", {}),
        ("bc", {"encoder_sizes": (8,)}),
        ("bc", {"steps": 2}),
        ("bc", {"average": 0.5}),
    ):
        with pytest.raises(ValueError, match="of another agent or training run: delete it"):
            begin(name, dataset, **settings).resume(state)


def test_a_copy_that_is_ready_leaves_training_as_it_was(kind: tuple[str, dict[str, Any]], dataset: DemoDataset) -> None:
    name, settings = kind
    run = begin(name, dataset, **settings)
    for batch in run.batches():
        run.step(run.agent.loss(batch, run.rng))
        if run.steps % 15 == 0:
            copied = run.ready_copy()
            assert not copied.training and copied is not run.agent
            copied.predict(dataset[0].observations)
            with torch.no_grad():
                for parameter in copied.parameters():
                    parameter.zero_()
    assert_same(run.finish(), train(name, dataset, **{**TINY, **settings}))


def test_a_step_takes_a_tensor_or_the_terms_of_a_loss(dataset: DemoDataset) -> None:
    runs = [begin("bc", dataset) for _ in range(2)]
    for batch, other in zip(runs[0].batches(), runs[1].batches(), strict=False):
        terms = runs[0].agent.loss(batch, runs[0].rng)
        loss = runs[1].step(sum(runs[1].agent.loss(other, runs[1].rng).values(), torch.zeros(())))
        assert runs[0].step(terms) == loss and not loss.requires_grad
    assert_same(runs[0].agent, runs[1].agent)


def test_batches_are_for_training(dataset: DemoDataset) -> None:
    """What is done with the agent between two batches, such as evaluating it, does not leave it in another mode."""
    run = begin("bc", dataset, steps=3)
    for batch in run.batches():
        assert run.agent.training and isinstance(batch, Batch)
        run.agent.eval()
        run.steps += 1


def test_dropout_is_drawn_by_the_seed_and_the_step(dataset: DemoDataset, own_parts: None) -> None:
    class Dropping(BC):
        name = "dropping"

        def build(self, encoder: torch.nn.Module | None) -> None:
            super().build(encoder)
            self.encoder = torch.nn.Sequential(torch.nn.Dropout(0.5), self.encoder)

    register(Dropping)
    before = torch.get_rng_state()
    agents = [train("dropping", dataset, **{**TINY, "seed": seed}) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(agents[0], agents[1])
    assert not torch.equal(agents[0].head[0].weight, agents[2].head[0].weight)
    first = take_steps(begin("dropping", dataset), until=17)
    torch.rand(5)
    second = begin("dropping", dataset)
    second.resume(first.state())
    assert_same(take_steps(second).finish(), agents[0])


def test_averages_go_to_their_own_weights_when_a_layer_is_frozen_later(dataset: DemoDataset) -> None:
    run = take_steps(begin("bc", dataset, average=0.9))
    means = {name: mean.clone() for name, mean in zip(run.names, run.average, strict=True)}
    run.parameters[2].requires_grad_(False)
    weights = dict(run.finish().named_parameters())
    assert len(means) > 4 and all(torch.equal(weights[name], mean) for name, mean in means.items())


def test_a_loss_of_ones_own(dataset: DemoDataset, own_parts: None) -> None:
    class Timid(BC):
        name = "timid"

        def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, torch.Tensor]:
            outputs = self.outputs(batch.now_states)
            return {**super().loss(batch, rng), "size": 100 * outputs.square().mean()}

    logged: list[dict[str, float]] = []
    timid = train(Timid, dataset, log_every=20, on_log=logged.append, **{**TINY, "steps": 200})
    bold = train("bc", dataset, **{**TINY, "steps": 200})
    observations = dataset[0].observations
    assert np.abs(timid.predict(observations)[0]).mean() < 0.3 * np.abs(bold.predict(observations)[0]).mean()
    for entry in logged:
        assert entry["loss"] == pytest.approx(entry["loss_bc"] + entry["loss_size"], rel=1e-5)


@pytest.mark.parametrize("name", ["bc", "delta-pidm"])
def test_supervised_and_ppo_steps_take_turns_on_the_same_weights(name: str, dataset: DemoDataset) -> None:
    run = begin(name, dataset, steps=60)
    envs = make_vec_env("PIDMNav-FourRoom-v0", 2, seed=0, env_kwargs={"max_episode_steps": 20})
    ppo = to_ppo(run.agent, envs, n_steps=16, batch_size=32, n_epochs=1, seed=0)
    batches: Iterator[Batch] = run.batches()
    seen, changes = dataset[0].observations[::11], []
    for _ in range(3):
        before = [parameter.detach().clone() for parameter in run.parameters]
        for _, batch in zip(range(20), batches, strict=False):
            run.step(run.agent.loss(batch, run.rng))
        between = [parameter.detach().clone() for parameter in run.parameters]
        ppo.learn(32, reset_num_timesteps=False)
        after = [parameter.detach().clone() for parameter in run.parameters]
        for one, other in ((before, between), (between, after)):
            changes.append(any(not torch.equal(*pair) for pair in zip(one, other, strict=True)))
        actions = run.agent.predict(seen)[0]
        np.testing.assert_allclose(ppo.predict(seen, deterministic=True)[0], actions, atol=1e-5)
    assert changes == [True] * 6 and np.isfinite(actions).all()


def test_defaults_are_the_agents_own(dataset: DemoDataset) -> None:
    agent = make_agent(PIDM, dataset_spaces(dataset))
    assert Fit(agent, dataset).config == PIDM.preset("fast").training
    assert Fit(agent, dataset, TrainConfig(1e-3, steps=3)).config.steps == 3


class Unusual(BC):
    """Tied modules, a part with a `kind` of its own, a loss without a name, and actions as a tensor."""

    name = "unusual"

    def build(self, encoder: torch.nn.Module | None) -> None:
        super().build(encoder)
        self.again, self.part = self.encoder, torch.nn.Linear(1, 1)
        self.part.kind = "gaussian"  # type: ignore[assignment]

    def loss(self, batch: Batch, rng: np.random.Generator) -> Any:
        return super().loss(batch, rng)["bc"]

    def act(self, states: Any, memory: Any, episode_start: Any) -> Any:
        actions, memory = super().act(states, memory, episode_start)
        return torch.tensor(actions), memory


@pytest.mark.usefixtures("own_parts")
def test_an_unusual_agent_is_trained_resumed_and_loaded_as_any_other(dataset: DemoDataset, tmp_path: Path) -> None:
    register(Unusual)

    def stop(step: int, agent: Agent) -> None:
        raise KeyboardInterrupt

    settings: Any = {**TINY, "save_every": 5, "checkpoints": (20,)}
    with pytest.raises(KeyboardInterrupt):
        train("unusual", dataset, out=tmp_path, on_checkpoint=stop, **settings)
    resumed = train("unusual", dataset, out=tmp_path, **settings)
    assert_same(resumed, train("unusual", dataset, **settings))
    loaded, observations = load_agent(tmp_path), dataset[0].observations
    np.testing.assert_array_equal(loaded.predict(observations)[0], resumed.predict(observations)[0])
    np.testing.assert_allclose(loaded.predict(observations[0])[0], resumed.predict(observations)[0][0], atol=1e-5)


@pytest.mark.usefixtures("own_parts")
def test_what_cannot_be_trained_is_a_sentence(dataset: DemoDataset) -> None:
    class Called(BC):
        name = "called"

        def sampling(self) -> Sampling:  # type: ignore[override]
            return Sampling()

    class Wide(BC):
        name = "wide"

        def build(self, encoder: torch.nn.Module | None) -> None:
            layers = torch.nn.Linear(2 * self.state_size, 8), torch.nn.BatchNorm1d(8)
            self.encoder, self.head = torch.nn.Sequential(*layers), self.make_head(8)

        def outputs(self, states: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.head(self.encoder(torch.cat([states, states.square()], dim=1)))
            return outputs

    with pytest.raises(ValueError, match=r"sampling of called is .*: make it a Sampling, or a property"):
        train(Called, dataset, **TINY)
    with pytest.raises(ValueError, match="the batch norm of encoder cannot be recomputed over scaled states"):
        train(Wide, dataset, **TINY)
    assert train(Wide, dataset, **TINY, recompute_batchnorm=False).training is False
    with pytest.raises(ValueError, match="batch norm needs at least 2 states in a batch: choose a larger batch_size"):
        train("bc", dataset, **{**TINY, "batch_size": 1})
    train("pidm", dataset, **{**TINY, "batch_size": 1})
    with pytest.raises(ValueError, match="a dataset needs at least one episode"):
        dataset[[]]
