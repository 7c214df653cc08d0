"""PIDM learns inverse dynamics, in every way it can be trained."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from pidm_nav.agents import PIDM, Fit, PIDMConfig, TrainConfig, TrainingData, train
from pidm_nav.agents.agent import make_agent
from pidm_nav.agents.batches import Trajectories
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Encoder
from pidm_nav.agents.predictors import Follow, Nearest, Oracle
from pidm_nav.demos.dataset import DemoDataset, Episode

OBSERVATION = spaces.Box(-10, 10, (2,), np.float32)
ACTION = spaces.Box(-2, 2, (2,), np.float32)
SPACES = (OBSERVATION, ACTION)
QUICK: dict[str, Any] = {"steps": 400, "batch_size": 64, "encoder_sizes": (64, 64), "head_sizes": (64,)}


def walk(seed: int, steps: int = 60) -> Episode:
    """A point that moves by its action, at random: only the future tells the action."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1.5, 1.5, (steps, 2)).astype(np.float32)
    positions = np.zeros((steps + 1, 2), dtype=np.float32)
    for step in range(steps):
        turned = np.abs(positions[step] + actions[step]) > 9
        actions[step] = np.where(turned, -actions[step], actions[step])
        positions[step + 1] = positions[step] + actions[step]
    return Episode(positions, actions, np.zeros(steps), terminated=False, truncated=True)


@pytest.fixture(scope="module")
def walks() -> DemoDataset:
    return DemoDataset("Random-Walk-v0", tuple(walk(seed) for seed in range(20)))


def fit(dataset: DemoDataset, name: str = "delta-pidm", **settings: Any) -> PIDM:
    agent = train(name, dataset, env_spaces=SPACES, **{**QUICK, **settings})
    assert isinstance(agent, PIDM)
    return agent


def idm_error(agent: PIDM, dataset: DemoDataset, horizon: int = 1) -> float:
    transitions = dataset.transitions(horizon)
    actions = agent.inverse_dynamics(transitions.state, transitions.future, horizon)
    return float(np.abs(actions - transitions.action).mean())


@pytest.mark.parametrize(
    "options",
    [
        {"idm": "delta"},
        {"idm": "state", "window": 1},
        {"idm": "state", "window": 8},
        {"name": "recurrent-pidm", "sequence": 8, "batch_size": 512, "steps": 200},
    ],
)
def test_the_action_is_read_off_the_future(walks: DemoDataset, options: dict[str, Any]) -> None:
    unseen = DemoDataset(walks.task, tuple(walk(seed) for seed in range(100, 105)))
    agent = fit(walks, **options)
    assert agent.diagnostics()["future_use"] > 1
    assert idm_error(agent, unseen) < 0.2  # BC cannot be better than 0.75, the mean size of a random action


def test_an_oracle_in_place_of_the_predictor_steers_the_agent(walks: DemoDataset) -> None:
    agent = fit(walks)
    observations = np.zeros((4, 2), dtype=np.float32)
    wanted = np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]])
    agent.predictor = Oracle(lambda rows: rows + wanted)
    assert np.abs(agent.predict(observations)[0] - wanted).max() < 0.5


def test_windows_and_pairs_have_the_same_loss(walks: DemoDataset) -> None:
    """On the whole dataset in evaluation mode, both ways of batching weigh every action once."""
    agent, data = fit(walks, "pidm", steps=5), TrainingData(walks)
    losses = []
    for window in (1, 8):
        trajectories = Trajectories(agent, data, window)
        count, _ = trajectories.candidates(agent.sampling, 10_000)
        batch = trajectories.batch(torch.arange(count), agent.sampling)
        with torch.no_grad():
            losses.append(agent.loss(batch, np.random.default_rng(0))["idm"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("idm", ["state", "delta"])
def test_several_horizons_are_told_apart(walks: DemoDataset, idm: str) -> None:
    agent = fit(walks, horizons=(1, 2, 4), idm=idm)
    assert agent.horizon == 1
    assert idm_error(agent, walks, 1) < 0.3
    transitions = walks.transitions(1)
    near = agent.inverse_dynamics(transitions.state, transitions.future, 1)
    far = agent.inverse_dynamics(transitions.state, transitions.future, 4)
    assert np.abs(near).mean() > 1.3 * np.abs(far).mean()  # more time, smaller steps
    with pytest.raises(ValueError, match="3"):
        agent.inverse_dynamics(transitions.state, transitions.future, 3)


def line(seed: int, steps: int = 60) -> Episode:
    """An expert who always walks on to the right: the state alone gives the action away."""
    noise = np.random.default_rng(seed).normal(0, 0.03, (steps, 2))
    actions = (np.float32([0.15, 0.3]) * np.where(np.arange(steps) < steps / 2, 1, -1)[:, None] + noise).astype(
        np.float32
    )
    positions = np.concatenate([np.zeros((1, 2), np.float32), np.cumsum(actions, axis=0)])
    return Episode(positions, actions, np.zeros(steps), terminated=True, truncated=False)


def test_one_demonstration_is_enough_for_a_model_that_sees_the_change() -> None:
    dataset = DemoDataset("Line-v0", (line(0),))
    errors = []
    for idm in ("state", "delta"):
        agent = fit(dataset, idm=idm, predictor="nearest")
        back = dataset[0].observations[1:], dataset[0].observations[:-1]  # where the demonstrator never went
        errors.append(float(np.abs(agent.inverse_dynamics(*back) + dataset[0].actions).mean()))
    assert errors[1] < 0.5 * errors[0]
    assert agent.description["future_use"] > 0.5
    with torch.no_grad():
        agent.idm.head[0].weight[:, -2:] = 0  # what the change feeds
    agent.after_training(TrainingData(dataset))
    assert agent.diagnostics()["future_use"] == 0


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not ask what a predictor has learned: 20 steps instead of 2,000."""
    monkeypatch.setattr(Learned.__init__, "__defaults__", (20, *Learned.__init__.__defaults__[1:]))


def test_states_are_kept_with_their_changes_where_the_same_change_needs_other_actions(walks: DemoDataset) -> None:
    """A spring throws the point to the other side: only state and change together tell how hard somebody pushed."""

    def pushed(seed: int) -> Episode:
        actions = np.random.default_rng(seed).uniform(-1.5, 1.5, (60, 2)).astype(np.float32)
        positions = np.zeros((61, 2), dtype=np.float32)
        for step, action in enumerate(actions):
            positions[step + 1] = action - np.float32(0.9) * positions[step]
        return Episode(positions, actions, np.zeros(60), terminated=False, truncated=True)

    spring = DemoDataset("Spring-v0", tuple(pushed(seed) for seed in range(20)))
    agent = fit(spring, steps=1000)
    assert agent.idm.shuffle_prob == 0 and fit(walks, steps=5).idm.shuffle_prob == 0.5
    assert idm_error(agent, spring, 1) < 0.5


def test_the_predictor_is_learned_where_goals_differ_between_demonstrations(few_steps: None) -> None:
    def toward(goal: float, seed: int) -> Episode:
        plain = line(seed, steps=20)
        goals = np.full((len(plain.observations), 1), goal, np.float32)
        return replace(plain, observations=np.hstack([plain.observations, goals]))

    own_spaces = spaces.Box(-50, 50, (3,), np.float32), ACTION
    for goals, predictor in (((1, 1), "follow"), ((1, 2), "learned"), ((1,), "follow")):
        dataset = DemoDataset("Line-v0", tuple(toward(goal, seed) for seed, goal in enumerate(goals)))
        first, second = (
            train("delta-pidm", dataset, steps=20, env_spaces=own_spaces, progress=False) for _ in range(2)
        )
        assert isinstance(first, PIDM) and first.config.predictor == predictor
        np.testing.assert_array_equal(*(each.predict(dataset[0].observations)[0] for each in (first, second)))


def test_play_teaches_where_the_same_change_needs_another_action() -> None:
    """Left of the middle, the controls are reversed; the demonstration is on the right, without actions or with."""

    def reversed_walk(seed: int) -> Episode:
        plain = walk(seed)
        controls = plain.actions * np.where(plain.observations[:-1, :1] < 0, -1, 1)
        return Episode(plain.observations, controls, np.zeros(60), terminated=False, truncated=True)

    played = DemoDataset("Walk-v0", tuple(reversed_walk(seed) for seed in range(20)))
    unseen = DemoDataset("Walk-v0", tuple(reversed_walk(seed) for seed in range(100, 105)))
    demonstrations = DemoDataset("Walk-v0", (line(0), line(1)))
    for dataset in (demonstrations, demonstrations.without_actions()):
        agent = train("delta-pidm", dataset, idm_data=played, env_spaces=SPACES, **QUICK)
        assert isinstance(agent, PIDM)
        assert idm_error(agent, unseen) < 0.35
        assert agent.description["idm_data"]["episodes"] == 20


@pytest.mark.parametrize("name", ["bc", "retrieval-bc", "pidm", "corrective-bc"])
def test_demonstrations_without_actions_need_other_data_to_act(walks: DemoDataset, name: str) -> None:
    with pytest.raises(ValueError, match=r"these demonstrations have no actions for .* such as random play"):
        train(name, walks.without_actions(), env_spaces=SPACES)


@pytest.mark.parametrize("idm", ["state", "delta"])
def test_a_batch_holds_the_share_of_other_data(walks: DemoDataset, idm: str) -> None:
    for own, others in ((1, 19), (19, 1)):
        agent = make_agent(PIDM, SPACES, PIDMConfig(idm=idm, idm_share=0.8))
        run = Fit(agent, TrainingData(walks[:own], idm=[walks[-others:]]), TrainConfig(1e-3, steps=40, batch_size=64))
        shares = []
        for batch in run.batches():
            shares.append(1 - float(batch.is_demo.mean()))
            run.steps += 1
        assert np.mean(shares) == pytest.approx(0.8, abs=0.03)


def test_features_that_hardly_ever_change_are_not_seen() -> None:
    def with_flag(episode: Episode, flag: float) -> Episode:
        column = np.full((len(episode) + 1, 1), flag, np.float32)
        column[0] = 0
        return Episode(
            np.concatenate([episode.observations, column * (flag != 0)], axis=1),
            episode.actions,
            np.zeros(len(episode)),
            terminated=False,
            truncated=True,
        )

    wide = (spaces.Box(-10, 10, (3,), np.float32), ACTION)
    demonstrations = DemoDataset("Walk-v0", tuple(with_flag(walk(seed), 1.0) for seed in range(2)))
    played = DemoDataset("Walk-v0", tuple(with_flag(walk(seed), 0.0) for seed in range(2, 9)))
    agent = train("delta-pidm", demonstrations, idm_data=played, env_spaces=wide, **{**QUICK, "steps": 5})
    assert isinstance(agent, PIDM)
    states = np.float32([[1, 2, 0], [1, 2, 1]])
    moved = states + np.float32([0.5, -0.5, 0])
    one, other = agent.inverse_dynamics(states, moved)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(agent.inverse_dynamics(states, moved + np.float32([0, 0, 1])), [one, other], atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"predictor": "nearest", "train_on_predicted": True},
        {"predictor": "follow", "train_on_predicted": True},
        {"predictor": "time", "train_on_predicted": True},
        {"predictor": "neighbors(k=2)", "train_on_predicted": True},
        {"predictor": "learned(batch_size=32, steps=600)"},
        {"predictor": "learned(batch_size=32)", "end_to_end": True},
    ],
)
def test_other_ways_to_train_learn_a_path(options: dict[str, object]) -> None:
    """One path round a circle: any future that lies ahead on it gives the action."""
    angle = np.linspace(0, 2 * np.pi, 61)
    episodes = []
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(0, 0.02, (61, 2))
        positions = (5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise).astype(np.float32)
        actions = np.diff(positions, axis=0)
        episodes.append(Episode(positions, actions, np.zeros(60), terminated=True, truncated=False))
    dataset = DemoDataset("Circle-v0", tuple(episodes))
    agent = fit(dataset, steps=300, **options)
    memory, actions = None, []
    for step, state in enumerate(dataset[0].observations[:-1]):
        action, memory = agent.predict(state, memory, [step == 0])
        actions.append(action)
    assert np.abs(actions - dataset[0].actions).mean() < 0.25 * np.abs(dataset[0].actions).mean()


def test_end_to_end_moves_the_predictor(walks: DemoDataset, few_steps: None) -> None:
    weights = [
        fit(walks, steps=steps, predictor="learned", end_to_end=True).predictor.network[0].weight for steps in (1, 20)
    ]
    assert not torch.allclose(weights[0], weights[1])


def test_extra_data_reaches_the_right_part(walks: DemoDataset) -> None:
    few = walks[:1]
    extra = walks[1:]
    with_idm = train("pidm", few, idm_data=extra, env_spaces=SPACES, **QUICK)
    without = train("pidm", few, env_spaces=SPACES, **QUICK)
    assert isinstance(with_idm, PIDM) and isinstance(without, PIDM)
    assert idm_error(with_idm, extra) < 0.6 * idm_error(without, extra)
    with_predictor = train("pidm", few, predictor_data=extra, env_spaces=SPACES, **{**QUICK, "steps": 2})
    assert isinstance(with_predictor, PIDM)
    inside = walks[5].observations[[7]]
    for agent, known in ((with_idm, few), (with_predictor, walks)):
        expected, _ = Nearest().build(agent.scale).fit(known).predict(inside)
        np.testing.assert_array_equal(agent.predictor.predict(inside)[0], expected)
    assert with_predictor.description["predictor_data"]["episodes"] == 19
    with pytest.raises(ValueError, match="bc does not use idm_data"):
        train("bc", few, idm_data=extra, **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizons": ()}, "at least 1"),
        ({"horizons": (0,)}, "expected `int` >= 1"),
        ({"horizons": (1, 2), "act_horizon": 3}, "not among"),
        ({"horizons": (1, 2), "train_on_predicted": True}, "give one, as the predictor"),
        ({"idm_share": 1.0}, "idm_share is 1.0"),
        ({"predictor": "crystal-ball"}, "there is no predictor 'crystal-ball': choose one of nearest"),
        ({"predictor": "nearst"}, "did you mean 'nearest'"),
        ({"end_to_end": True}, "end_to_end needs a learned predictor: nearest has nothing to train"),
        ({"idm": "delta(state_shuffle_prob=1.5)"}, "state_shuffle_prob of the inverse dynamics model delta is 1.5"),
        ({"idm": "physics"}, "there is no inverse dynamics model 'physics'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PIDM(OBSERVATION, ACTION, PIDMConfig(**options))  # type: ignore[arg-type]


def test_idm_data_without_actions_is_refused_in_a_sentence(walks: DemoDataset) -> None:
    with pytest.raises(ValueError, match="idm_data has no actions: give"):
        train("pidm", walks[:1], idm_data=walks[1:].without_actions(), env_spaces=SPACES, **QUICK)


def test_units_of_changes_are_those_of_each_horizon(walks: DemoDataset) -> None:
    """Ten steps lead further than one: pooled over both, changes of one step would all look small."""
    agent = fit(walks, steps=1, horizons=(1, 10))
    for index, horizon in enumerate((1, 10)):
        transitions = walks.transitions(horizon)
        now, future = agent.scaled(transitions.state), agent.scaled(transitions.future)
        shown = agent.idm.delta(now, future, index)
        assert shown.square().mean().item() == pytest.approx(1, abs=0.05)


def test_nothing_is_trained_twice_where_the_predictor_is_learned_and_the_model_solved(walks: DemoDataset) -> None:
    agent = fit(walks, idm="linear", predictor="learned(steps=20)", steps=5)
    assert not any(parameter.requires_grad for parameter in agent.parameters())


def test_a_linear_inverse_dynamics_model_needs_no_training(walks: DemoDataset) -> None:
    agent = fit(walks, idm="linear(ridge=1e-6)", steps=1, horizons=(1, 5))
    assert idm_error(agent, walks) < 0.01
    states, actions, futures, *_ = walks.transitions(5)
    weights = np.linalg.lstsq(futures - states, actions, rcond=None)[0]
    assert np.abs(agent.inverse_dynamics(states, futures, 5) - (futures - states) @ weights).mean() < 0.05


# who learns from what


def straight(step: tuple[float, float], start: tuple[float, float], steps: int = 30) -> Episode:
    """A walk by the same step again and again."""
    actions = np.tile(np.float32(step), (steps, 1))
    positions = np.float32(start) + np.float32(step) * np.arange(steps + 1, dtype=np.float32)[:, None]
    return Episode(positions, actions, np.zeros(steps), terminated=True, truncated=False)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["pidm", "delta-pidm"])
def test_end_to_end_learns_the_predictor_from_demonstrations_and_never_from_play(name: str) -> None:
    demos = DemoDataset("Line-v0", (straight((0.2, 0), (-3, 0)), straight((0.2, 0), (-3, 0.1))))
    more = DemoDataset("Line-v0", (straight((0, 0.2), (6, -3)),)).without_actions()
    play = DemoDataset("Line-v0", tuple(straight((-0.2, 0), (3, y)) for y in (0, 0.05, 0.1)))
    settings = {**QUICK, "steps": 400, "predictor": "learned", "end_to_end": True}
    agent = train(name, demos, predictor_data=more, idm_data=play, env_spaces=SPACES, **settings)
    assert isinstance(agent, PIDM)
    for known, step in ((demos, (0.2, 0)), (more, (0, 0.2))):
        states = known.transitions().state[:-2]
        changes = agent.predictor.predict(states)[0] - states
        assert np.abs(changes - np.float32(step)).mean() < 0.06  # play goes back through the very states of `demos`


def all_of(run: Fit) -> Any:
    """Every step of the data once, as one batch."""
    sampling = run.agent.sampling
    return run.trajectories.batch(torch.arange(run.trajectories.candidates(sampling, 1)[0]), sampling)


def test_predicted_futures_stand_in_for_those_of_demonstrations_only(walks: DemoDataset) -> None:
    demos, play = walks[:3], walks[3:6]
    agent = make_agent(PIDM, SPACES, PIDMConfig(train_on_predicted=True, idm_share=0.5))
    batch = all_of(Fit(agent, TrainingData(demos, idm=[play]), TrainConfig(1e-3)))
    others = [Nearest().build(agent.scale).fit(demos[rows]) for rows in ([1, 2], [0, 2], [0, 1])]
    expected = [other.predict(demos[index].observations[:-1])[0] for index, other in enumerate(others)]
    expected += [episode.observations[1:] for episode in play]
    torch.testing.assert_close(batch.future_states[:, 0], agent.scaled(np.concatenate(expected)))
    assert batch.is_demo.tolist() == [1.0] * demos.num_steps + [0.0] * play.num_steps


def test_predicted_futures_by_time_end_with_the_shorter_demonstration() -> None:
    short, long = straight((0.2, 0), (-3, 0), steps=5), straight((0.2, 0), (-3, 0.5), steps=9)
    agent = make_agent(PIDM, SPACES, PIDMConfig(predictor="time", train_on_predicted=True))
    batch = all_of(Fit(agent, DemoDataset("Line-v0", (short, long)), TrainConfig(1e-3)))
    ahead = [long.observations[step + 1] for step in range(5)]
    ahead += [short.observations[min(step + 1, 5)] for step in range(9)]
    torch.testing.assert_close(batch.future_states[:, 0], agent.scaled(np.array(ahead)))


@pytest.mark.parametrize("predictor", ["time", "follow", "neighbors"])
def test_more_and_longer_play_than_demonstrations_keeps_its_own_futures(predictor: str, walks: DemoDataset) -> None:
    demos, play = DemoDataset(walks.task, (walk(50, steps=7), walk(51, steps=9))), walks[:5]
    agent = make_agent(PIDM, SPACES, PIDMConfig(predictor=predictor, train_on_predicted=True, idm_share=0.5))
    batch = all_of(Fit(agent, TrainingData(demos, idm=[play]), TrainConfig(1e-3)))
    other = batch.is_demo == 0
    futures = agent.scaled(play.transitions().future)
    assert int(other.sum()) % play.num_steps == 0 and int(other.sum()) > 0
    for part in batch.future_states[other, 0].split(play.num_steps):
        torch.testing.assert_close(part, futures)


def test_held_out_futures_keep_their_place_on_a_path_that_crosses_itself() -> None:
    angle = np.linspace(0, 2 * np.pi, 41)
    loop = np.stack([4 * np.sin(angle), 4 - 4 * np.cos(angle)], axis=1)
    path = np.concatenate([np.linspace([-4, 0], [-0.4, 0], 10), loop, np.linspace([0.4, 0], [4, 0], 10)])
    episodes = []
    for shift in (0.0, 0.03):
        positions = (path + shift).astype(np.float32)
        episodes.append(Episode(positions, np.diff(positions, axis=0), np.zeros(len(path) - 1), True, False))
    dataset = DemoDataset("Loop-v0", tuple(episodes))
    for index, futures in enumerate(Follow().fit(dataset).held_out_futures(dataset)):
        other = episodes[1 - index].observations
        np.testing.assert_array_equal(futures[:-1], other[1:])


def test_idm_data_of_other_shapes_is_refused(walks: DemoDataset) -> None:
    other = DemoDataset("Wide-v0", (Episode(np.zeros((3, 5)), np.zeros((2, 2)), np.zeros(2), True, False),))
    with pytest.raises(ValueError, match="give others"):
        train("pidm", walks, idm_data=other, env_spaces=SPACES, **QUICK)


def test_a_horizon_beyond_every_demonstration_is_refused(walks: DemoDataset) -> None:
    with pytest.raises(ValueError, match="horizon 9999 is too long: no demonstration has more than 60 steps"):
        fit(walks, horizons=(9999,))


def test_an_encoder_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="output_size"):
        PIDM(OBSERVATION, ACTION, encoder=nn.Flatten())
    assert Encoder(2, (4,)).output_size == 4
