"""Names and colors are the same in every figure, and equal figures give equal files."""

import os

import matplotlib
import pytest

from pidm_nav.experiments.figures import Gain, plot_gains
from pidm_nav.plots import (
    AGENT_STYLES,
    DEMONSTRATOR_COLORS,
    agent_color,
    agent_styles,
    agent_title,
    demonstrator,
    demonstrator_color,
    demonstrator_colors,
    demonstrator_title,
    panels,
    save_figure,
    task_title,
)


def test_a_demonstrator_has_one_color_whatever_else_is_drawn():
    names = ["human", "A*", "human-like"]
    assert demonstrator_colors(names) == demonstrator_colors(names[::-1])[::-1] == [*map(demonstrator_color, names)]
    assert demonstrator_color("someone") == demonstrator_color("someone")
    colors = demonstrator_colors(["A* expert", "astar", "someone", "someone"])
    assert len(set(colors)) == 4 and colors[0] == DEMONSTRATOR_COLORS["astar"]
    assert not {style.color for style in AGENT_STYLES.values()} & set(DEMONSTRATOR_COLORS.values())


def test_gains_go_from_the_largest_of_the_first_panel_down():
    small, large = Gain("a", "#111111", 0.1, -0.1, 0.3), Gain("b", "#222222", 0.5, 0.4, 0.6)
    first, second = plot_gains({"one": [small, large], "two": [large, small._replace(high=0.9)]}, "gain").axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["b", "a"] and first.yaxis_inverted()
    assert first.get_xlim() == second.get_xlim() and first.get_xlim()[1] > 0.9  # so that panels can be compared


@pytest.mark.parametrize(
    ("made_by", "name", "title"),
    [
        ("maze_human.npz", "human", "human"),
        ("HumanLikePlayer", "human-like", "human-like"),
        ("human_like", "human-like", "human-like"),
        ("AStarExpert", "astar", "A*"),
        ("scripted", "scripted", "scripted"),
    ],
)
def test_demonstrators_have_one_name_and_one_title(made_by, name, title):
    assert (demonstrator(made_by), demonstrator_title(made_by)) == (name, title)
    assert demonstrator(title) == name


def test_agents_and_tasks_have_titles():
    assert [agent_title(name) for name in ("bc", "pidm", "mine")] == ["BC", "PIDM", "mine"]
    assert agent_color("bc") != agent_color("pidm") and agent_color("mine") == agent_color("mine")
    ten = agent_styles(["bc", "pidm", *(f"mine-{number}" for number in range(10))])
    assert len({(style.color, style.marker) for style in ten.values()}) == 12
    assert (task_title("tour-3d"), task_title("Swing-v1")) == ("Tour", "Swing-v1")


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_equal_figures_give_equal_files(tmp_path, suffix):
    for name in ("first", "second"):
        figure, axes = panels(3)
        for ax in axes:
            ax.plot([1, 2], [3, 4])
        save_figure(figure, tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"second.{suffix}").read_bytes()


def test_names_are_drawn_as_they_are_and_numbers_as_powers(tmp_path):
    figure, (ax,) = panels(1)
    ax.plot([1, 1000], [1, 1000], label="$a$ and \x1b")
    ax.set(title=r"$\nonsense$", yscale="log")
    legend = ax.legend()
    save_figure(figure, tmp_path / "x.svg")
    assert ax.title.get_text() == r"$\nonsense$" and legend.get_texts()[0].get_text() == "$a$ and \\x1b"
    assert any("mathdefault{10^{2}}" in label.get_text() and label.get_parse_math() for label in ax.get_yticklabels())


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"x.docx.*\.png, \.pdf or \.svg"):
        save_figure(panels(1)[0], tmp_path / "x.docx")
    assert not os.listdir(tmp_path)


def test_a_figure_is_laid_out_once_whatever_the_user_s_settings(tmp_path):
    with matplotlib.rc_context({"figure.autolayout": True}):
        figure, (ax,) = panels(1)
        figure.colorbar(ax.imshow([[0, 1]]), ax=ax)
        places = [ax.get_position().bounds]
        for suffix in ("png", "pdf", "svg"):
            save_figure(figure, tmp_path / f"x.{suffix}")
            places.append(ax.get_position().bounds)
    assert places[0] != places[1] == places[2] == places[3]
