"""Python as people type it: names and paths where objects are taken, and a sentence for what is mixed up."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import pidm_nav
from pidm_nav.rollouts import evaluation

QUICK = {"steps": 2, "progress": False}


@pytest.fixture(scope="module")
def demos() -> pidm_nav.DemoDataset:
    return pidm_nav.load_demos("zigzag/human-like")


def test_train_takes_the_name_of_demonstrations(tmp_path):
    agent = pidm_nav.train("bc", "zigzag/human-like", out=str(tmp_path / "a"), **QUICK)
    assert agent.description["task"] == "zigzag"
    more = pidm_nav.train("pidm", "zigzag/human-like", idm_data="zigzag/astar", **QUICK)
    assert more.description["idm_data"]["name"] == "zigzag/astar"


def test_agent_json_names_its_data(demos, tmp_path):
    demos[:3].save(tmp_path / "mine.npz")
    pidm_nav.train("bc", str(tmp_path / "mine.npz"), out=tmp_path / "a", **QUICK)
    data = json.loads((tmp_path / "a" / "agent.json").read_text())["data"]
    assert data["name"] == "mine.npz"  # without folders, which are nobody else's business
    assert data["sha256"] == demos[:3].sha256
    assert str(tmp_path) not in (tmp_path / "a" / "agent.json").read_text()


def test_a_sample_knows_where_it_is_from(demos):
    assert demos.sample(2).name == demos[:1].name == "zigzag/human-like"


def test_evaluate_takes_names(tmp_path):
    by_name = pidm_nav.evaluate("zigzag/pidm", "zigzag", episodes=3)
    agent = pidm_nav.load_agent("zigzag/pidm")
    assert by_name.scores.tolist() == pidm_nav.evaluate(agent, "zigzag", episodes=3).scores.tolist()
    agent.save(str(tmp_path))
    assert pidm_nav.evaluate(tmp_path, "zigzag", episodes=3).scores.tolist() == by_name.scores.tolist()
    assert pidm_nav.evaluate("astar", "zigzag", episodes=2).success_rate == 1


def test_evaluate_knows_what_an_agent_was_trained_on(demos):
    agent = pidm_nav.train("bc", demos, **QUICK)
    result = pidm_nav.evaluate(agent, episodes=2)
    assert result.task.name == "zigzag" and result.env_kwargs == agent.description["env_kwargs"]
    with pytest.raises(ValueError, match="give a task"):
        pidm_nav.evaluate("astar")


@pytest.mark.parametrize("make", ["id", "class", "arguments", "custom"])
def test_evaluate_takes_an_environment_and_leaves_it_open(make):
    text = pidm_nav.find_task("zigzag").layout().text
    env = {
        "id": lambda: gym.make("PIDMNav-Zigzag-v0"),
        "class": lambda: pidm_nav.NavEnv(task="zigzag"),
        "arguments": lambda: gym.make("PIDMNav-Zigzag-v0", noise_std=0.0),
        "custom": lambda: gym.make("PIDMNav-Custom-v0", layout=text, max_episode_steps=150),
    }[make]()
    closed = []
    env.unwrapped.close = lambda: closed.append(True)
    found = pidm_nav.evaluate("zigzag/pidm", env, episodes=3)
    kwargs = {"arguments": {"noise_std": 0.0}}.get(make, {})
    if make != "custom":
        assert found.scores.tolist() == pidm_nav.evaluate("zigzag/pidm", "zigzag", 3, **kwargs).scores.tolist()
        assert found.env_kwargs == kwargs
    assert found.metric == "goal ratio" and found.num_goals == 6 and len(found.frames()) == found.length[0] + 1
    assert not closed
    env.reset(seed=0)


def test_evaluate_takes_anybodys_environment_with_its_wrappers():
    class Left:
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.zeros(len(observation), np.int64), state

    limited = gym.wrappers.TimeLimit(gym.make("CartPole-v1").unwrapped, 5)
    result = pidm_nav.evaluate(Left(), limited, episodes=2)
    assert result.metric == "return" and result.length.tolist() == [5, 5]
    named = pidm_nav.evaluate(Left(), gym.make("CartPole-v1"), episodes=2)
    assert named.task.name == "CartPole-v1"
    assert named.returns.tolist() == pidm_nav.evaluate(Left(), "CartPole-v1", episodes=2).returns.tolist()
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        pidm_nav.evaluate(Left(), gym.make("CartPole-v1"), episodes=1, film=0)
    filmed = pidm_nav.evaluate(Left(), gym.make("CartPole-v1", render_mode="rgb_array"), episodes=1, film=0)
    assert len(filmed.frames()) == filmed.length[0] + 1


def test_arguments_of_an_environment_that_is_made_are_refused():
    with pytest.raises(ValueError, match="noise_std cannot be changed"):
        pidm_nav.evaluate("zigzag/pidm", gym.make("PIDMNav-Zigzag-v0"), noise_std=0.1)


def test_samples_and_splits_take_a_seed(demos):
    assert demos.sample(2, seed=3).sha256 == demos.sample(2, np.random.default_rng(3)).sha256
    assert demos.sample(2, seed=3).sha256 != demos.sample(2, seed=4).sha256
    assert demos.split(5, seed=1)[0].sha256 == demos.split(5, np.random.default_rng(1))[0].sha256


@pytest.mark.parametrize("kind", [str, Path])
def test_demonstrations_and_agents_save_and_load_themselves(demos, kind, tmp_path):
    demos[:2].save(kind(tmp_path / "two.npz"))
    assert pidm_nav.load_demos(kind(tmp_path / "two.npz")).sha256 == demos[:2].sha256
    assert pidm_nav.load_demos(demos) is demos
    pidm_nav.load_agent("zigzag/pidm").save(kind(tmp_path / "agent"))
    assert isinstance(pidm_nav.PIDM.load(kind(tmp_path / "agent")), pidm_nav.PIDM)
    with pytest.raises(ValueError, match="holds a PIDM, not a BC"):
        pidm_nav.BC.load(kind(tmp_path / "agent"))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda demos: pidm_nav.train(demos, "bc"), "give the agent's name, such as bc"),
        (lambda demos: pidm_nav.train("zigzag/human-like", "bc"), "there is no agent 'zigzag/human-like'"),
        (lambda demos: pidm_nav.train("bc", 5), "5 is not a dataset"),
        (lambda demos: pidm_nav.evaluate("zigzag", "zigzag/pidm"), r"give evaluate\(agent, task\)"),
        (lambda demos: pidm_nav.evaluate("zigzag", pidm_nav.AStarExpert("zigzag")), r"give evaluate\(agent, task\)"),
        (lambda demos: pidm_nav.evaluate(gym.make("CartPole-v1"), "zigzag"), "has no predict"),
        (lambda demos: evaluation.evaluate(demos, pidm_nav.AStarExpert("maze")), "the policy comes before the task"),
        (lambda demos: demos.sample(np.random.default_rng(0), 2), "cannot sample Generator"),
        (lambda demos: demos.sample(2, 0), "seed=0"),
        (lambda demos: demos.split(np.random.default_rng(0), 2), "cannot split"),
    ],
)
def test_what_is_mixed_up_gets_a_sentence(demos, call, told):
    with pytest.raises(ValueError, match=told):
        call(demos)


def test_import_stays_light():
    code = "import sys, pidm_nav; sys.exit(bool({'torch', 'pygame', 'scipy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
