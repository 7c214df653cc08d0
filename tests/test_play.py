import dataclasses
import re

import numpy as np
import pygame
import pytest
import tyro

from pidm_nav.commands.record import Play
from pidm_nav.demos import load_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.recorder import loop as recorder
from pidm_nav.demos.recorder.controls import Controls, Reading
from pidm_nav.demos.recorder.loop import Pace
from pidm_nav.demos.recorder.players import Rival
from pidm_nav.demos.recorder.screen import GHOST, LOW, PANEL, SUCCESS, Screen
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.tasks import PAPER_TASKS, find_task
from pidm_nav.world2d.drawing import COLORS
from pidm_nav.world2d.state import POSITION

MAP = "########\n#......#\n#.A..1.#\n#......#\n########\n"


def against(task: str, policy, seed: int = 5, **env_kwargs) -> Session:
    """A session of one person against a policy."""
    found = find_task(task)
    rival = Rival("Bot", policy, found.make_vec(1, **env_kwargs))
    return Session(found, env_kwargs, Rules(seed=seed), rival=rival)


def race(task: str, policy, person, **env_kwargs) -> Session:
    """A round against a policy, in which the person's hand is another policy's."""
    session = against(task, policy, **env_kwargs)
    session.tick(Reading())
    while not session.results:
        session.tick(Reading(tuple(person.predict(session.person.state)[0].tolist())))
    return session


class Lazy:
    """Goes right, slowly."""

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.broadcast_to([0.4, 0.0], (*np.shape(observation)[:-1], 2)), state


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_a_person_who_does_what_the_rival_does_ends_in_a_draw(task):
    """The same noise and the same physics: both trajectories are one."""
    session = race(task, AStarExpert(task), AStarExpert(task))
    assert session.rival.wins == session.rival.losses == 0
    alone = collect(AStarExpert(task), task, 1, seed=5)[0]
    goals, steps = PAPER_TASKS[task].num_goals, len(alone)
    assert session.results == [f"A draw! You: {goals} goals in {steps} steps. Bot: {goals} in {steps}."]


def test_the_rival_makes_the_steps_it_would_make_alone():
    alone = collect(AStarExpert("maze"), "maze", 1, seed=5, noise_std=0.3)[0]
    session = against("maze", AStarExpert("maze"), noise_std=0.3)
    session.tick(Reading())
    for _ in range(40):
        session.tick(Reading((0.9, -0.3)))
    assert np.array_equal(session.rival.trace, alone.observations[:41, :2])


def test_the_faster_one_wins_and_the_slower_ones_end_is_counted():
    fast, slow = AStarExpert("zigzag", speed=1.0, directions=None), AStarExpert("zigzag")
    won, lost = race("zigzag", slow, fast), race("zigzag", fast, slow)
    assert won.results[0].startswith("You win!") and (won.rival.wins, won.rival.losses) == (1, 0)
    assert lost.results[0].startswith("Bot wins!") and (lost.rival.wins, lost.rival.losses) == (0, 1)
    alone = collect(slow, "zigzag", 1, seed=5)[0]
    assert f"Bot: 6 in {len(alone)}." in won.results[0]


def test_more_goals_win_however_long_they_take():
    session = race("four-room", Lazy(), AStarExpert("four-room"))
    assert session.results[0].startswith("You win!") and "Bot: 0 in 200" in session.results[0]
    assert race("four-room", Lazy(), Lazy()).results[0].startswith("A draw!")


def test_giving_up_loses_and_the_window_lives_on_while_the_rival_goes_to_its_end():
    session = against("maze", AStarExpert("maze"))
    for reading in (Reading(), Reading((1.0, 0.0)), Reading(commands=("finish",))):
        session.tick(reading)
    assert session.phase == "waiting" and session.rival.steps < 20 and not session.results
    screen, frames = Screen("Maze", "race", Controls(), 480), 0
    before = screen.draw(session, Reading())
    while not session.results:
        session.tick(Reading((1.0, 0.0), ("finish", "pause")))
        frames += 1
    assert frames > 5 and session.phase == "ready" and session.person.steps == 0
    assert (screen.draw(session, Reading()) != before).any()
    alone = collect(AStarExpert("maze"), "maze", 1, seed=5)[0]
    assert session.results == [f"Bot wins! You: 0 goals in 1 step. Bot: 10 in {len(alone)}."]


@pytest.mark.parametrize(("command", "phase"), [("redo", "ready"), ("quit", "over")])
def test_one_need_not_wait_for_the_rival(command, phase):
    session = against("maze", AStarExpert("maze"))
    for reading in (Reading(), Reading((1.0, 0.0)), Reading(commands=("finish",)), Reading(commands=(command,))):
        session.tick(reading)
    assert session.phase == phase and not session.results


def test_the_ghost_is_seen_in_a_color_of_its_own():
    session = against("maze", AStarExpert("maze"))
    session.tick(Reading())
    for _ in range(20):
        session.tick(Reading((1.0, 0.0)))
    frame = Screen("Maze", "race", Controls(), 800).draw(session, Reading())
    assert frame.shape == (800, 800 + PANEL, 3)
    y, x = np.argwhere(np.abs(frame[:, :800].astype(int) - GHOST).sum(axis=2) < 60).mean(axis=0)
    trace = np.array(session.rival.trace)
    assert np.linalg.norm(np.array([x, y]) - trace[-1]) < np.ptp(trace, axis=0).max()


def test_the_ghost_does_not_cover_the_person_at_the_start():
    session = against("maze", AStarExpert("maze"))
    frame = Screen("Maze", "race", Controls(), 800).draw(session, Reading())
    x, y = session.person.state[POSITION].round().astype(int)
    assert frame[y, x].tolist() == list(COLORS["agent"])
    around = frame[y - 16 : y + 16, x - 16 : x + 16].astype(int)
    assert (np.abs(around - GHOST).sum(axis=2) < 30).sum() > 50


def test_a_won_round_is_celebrated():
    session = race("zigzag", Lazy(), AStarExpert("zigzag"))
    frame = Screen("Zigzag", "race", Controls(), 800).draw(session, Reading())
    assert session.outcome == "success" and (np.abs(frame.astype(int) - SUCCESS).sum(axis=2) < 60).sum() > 1000


class Still:
    """Does nothing, in any environment."""

    def __init__(self, size):
        self.size = size

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.zeros((len(observation), self.size)), state


def test_without_goals_the_higher_return_wins_and_giving_up_loses():
    task = dataclasses.replace(find_task("Pendulum-v1"), max_steps=20)
    session = Session(task, {}, Rules(seed=3), rival=Rival("Bot", Still(1), task.make_vec(1)))
    frame = Screen(task.title, "race", Controls(), 480).draw(session, Reading())
    assert frame.shape == (480, 480 + round(PANEL * 480 / LOW), 3)
    for commands in ((), ("finish",)):
        session.tick(Reading())
        ended = len(session.results)
        while len(session.results) == ended:
            session.tick(Reading((0.5, 0.0), commands if session.person.steps else ()))
    session.close()
    played, given_up = session.results
    returns = [float(value) for value in re.findall(r"(?:return|Bot:) (-?[\d.]+) in 20", played)]
    assert len(returns) == 2
    assert played.startswith("You win!" if returns[0] > returns[1] else "Bot wins!")
    assert given_up.startswith("Bot wins! You: return ")


def test_one_races_in_3d():
    pytest.importorskip("vizdoom", reason="the extra 3d is not installed")
    task = dataclasses.replace(find_task("zigzag-3d"), max_steps=6)
    kwargs = {"image_size": 32}
    session = Session(task, kwargs, Rules(), rival=Rival("Bot", make_expert(None, task), task.make_vec(1, **kwargs)))
    session.tick(Reading())
    while not session.results:
        session.tick(Reading((0.0, -1.0)))
    frame = Screen(task.title, "race", Controls(), 480).draw(session, Reading())
    session.close()
    assert session.results == ["A draw! You: 0 goals in 6 steps. Bot: 0 in 6."]
    assert frame.shape == (480, 480 + round(PANEL * 480 / LOW), 3)


# ---- the command


@pytest.fixture
def play(monkeypatch):
    """`pidm-nav play` on a clock of its own: two rounds of keys, then the window is closed."""

    def key(name, down=True):
        return pygame.event.Event(pygame.KEYDOWN if down else pygame.KEYUP, key=pygame.key.key_code(name))

    def play_command(*arguments):
        pygame.display.init()
        one = [[], [], [key("up")], [], [], [], [key("up", False), key("return"), key("return", False)]]
        script, time = iter((one + [[]] * 25) * 2), [0.0]  # the rival plays on in the last frames of a round

        def sleep(seconds):
            time[0] += seconds
            for event in next(script, [pygame.event.Event(pygame.QUIT)]):
                pygame.event.post(event)

        monkeypatch.setattr(recorder, "Pace", lambda fps: Pace(fps, lambda: time[0], sleep))
        tyro.cli(Play, args=list(map(str, arguments))).run()

    return play_command


def test_one_plays_alone(play, capsys):
    play("--task", "zigzag")
    printed = capsys.readouterr().out
    assert "Round 2: 0 of 6 goals in 3 steps" in printed and "30.00 steps per second" in printed


@pytest.mark.parametrize(("agent", "name"), [("astar", "A*"), ("human-like", "human-like"), ("zigzag/pidm", "PIDM")])
def test_one_races_who_comes_with_the_package(play, capsys, agent, name):
    play("--task", "zigzag", "--agent", agent)
    assert f"You 0 : 2 {name}" in capsys.readouterr().out


def test_rounds_end_the_game(play, capsys):
    play("--task", "zigzag", "--rounds", 1)
    printed = capsys.readouterr().out
    assert "Round 1" in printed and "Round 2" not in printed


def test_a_number_of_rounds_is_needed(play):
    with pytest.raises(ValueError, match="rounds is 0"):
        play("--task", "zigzag", "--rounds", 0)


def test_an_expert_of_another_world_is_refused(play, tmp_path):
    with pytest.raises(ValueError, match="zigzag has no expert 'scripted'"):
        play("--task", "zigzag", "--agent", "scripted")
    (tmp_path / "map.txt").write_text(MAP)
    with pytest.raises(ValueError, match="'scripted'"):
        play("--layout", tmp_path / "map.txt", "--agent", "scripted")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder as train leaves it; the agent is a bad one."""
    from pidm_nav.agents import train

    folder = tmp_path_factory.mktemp("runs") / "x"
    train("bc", load_demos("zigzag/astar")[:1], out=folder, steps=2)
    return folder


def test_one_races_a_trained_agent_on_its_own_task(play, capsys, trained):
    play("--agent", trained)
    printed = capsys.readouterr().out
    assert printed.count("BC: ") == 2 and re.search(r"You \d : \d BC", printed)


def test_an_agent_of_another_task_is_refused(play, trained):
    with pytest.raises(ValueError, match="trained on zigzag, not on maze: choose that task"):
        play("--agent", trained, "--task", "maze")


def test_an_agent_that_is_not_there_is_refused(play, tmp_path):
    with pytest.raises(FileNotFoundError, match="astar, human-like"):
        play("--task", "maze", "--agent", tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        play("--task", "maze", "--agent", tmp_path)
    with pytest.raises(ValueError, match="--task"):
        play()


def test_a_map_of_ones_own(play, capsys, tmp_path):
    (tmp_path / "map.txt").write_text(MAP)
    play("--layout", tmp_path / "map.txt", "--agent", "astar", "--room-size", 320, 200)
    assert "You 0 : 2 A*" in capsys.readouterr().out
