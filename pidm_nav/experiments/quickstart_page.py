"""The quickstart's pictures, tables and page."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from pidm_nav.demos.formats.npz import atomic_file
from pidm_nav.demos.traces import plot_traces
from pidm_nav.experiments.charts import draw_figure
from pidm_nav.experiments.curves import Curve, mean_curve, seed_scores, std_curve
from pidm_nav.experiments.figures import TONES, Figure, Line, Panel, agent_title, demos_title
from pidm_nav.experiments.page import STYLE
from pidm_nav.experiments.quickstart import AGENTS, Result
from pidm_nav.experiments.tables import NONE, Table
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.drawing import Frame
from pidm_nav.world2d.render import render_state, side_by_side, write_video

GIF = "bc-and-pidm.gif"
PANE = 400  # px of each agent's picture
EVERY = 2  # steps a frame
PAUSE = 24  # frames that the end stays
ENOUGH = 100  # gradient steps; below, a trial run has learned nothing

MORE_STYLE = """
main { max-width: 940px; } .panels { grid-template-columns: minmax(0, 500px); justify-content: center; }
img { display: block; max-width: 100%; height: auto; border-radius: 10px; background: #fff; margin: 14px auto 0; }
img.map { width: min(100%, 560px); }
.found { font-size: 1.05rem; max-width: 46em; } .tile.bc b { color: var(--bc); } .tile.pidm b { color: var(--pidm); }
pre { background: var(--page); border: 1px solid var(--rule); border-radius: 10px; padding: 10px 14px; overflow-x: auto;
  margin: 4px 0 16px; font: .88rem/1.5 ui-monospace, "SF Mono", Consolas, monospace; }
pre::selection, pre *::selection { background: var(--accent); color: var(--card); }
"""


def headline(result: Result) -> str:
    """What came out, whoever is ahead, on either kind of demonstrations."""
    bc, pidm = (_last(result, "human-like", agent) for agent in AGENTS)
    verdict = "PIDM is ahead" if pidm > bc + 0.005 else "BC is ahead" if bc > pidm + 0.005 else "Neither is ahead"
    if result.plan.steps < ENOUGH:
        verdict = f"{result.plan.steps} gradient steps are too few to tell"
    wins, pairs = _wins(result)
    text = (
        f"{verdict}: after {result.plan.shown} human-like demonstrations PIDM reaches {pidm:.0%} of the goals, "
        f"BC {bc:.0%}; PIDM does better in {wins} of {pairs} pairs of trainings on the same human-like demonstrations."
    )
    if ("astar", "pidm") in result.curves:
        bc, pidm = (_last(result, "astar", agent) for agent in AGENTS)
        size = result.curves["astar", "pidm"].sizes[-1]
        text += f" After {size} of the A* planner, which does not vary its ways, PIDM reaches {pidm:.0%}, BC {bc:.0%}."
    return text


def _last(result: Result, kind: str, agent: str) -> float:
    """Mean goal ratio with the most demonstrations."""
    return float(mean_curve(result.curves[kind, agent])[-1])


def _wins(result: Result) -> tuple[int, int]:
    """Pairs of trainings on human-like demonstrations, equal but for the agent: those PIDM wins, and all."""
    bc, pidm = (seed_scores(result.curves["human-like", agent]) for agent in AGENTS)
    return int((pidm > bc).sum()), pidm.size


def how_made(result: Result) -> list[tuple[str, str]]:
    """What a reader needs to judge the numbers."""
    plan, episode = result.plan, result.episode
    seeds = ", ".join(map(str, plan.seeds))
    num_goals = TASKS[plan.task].num_goals
    return [
        ("Task", f"{TASKS[plan.task].title}: {num_goals} goals in order, at most {TASKS[plan.task].max_steps} steps"),
        ("Demonstrations", f"{plan.demos} of a human-like script and {plan.demos} of an A* planner, made just now"),
        ("Seeds", f"{seeds}: each draws the demonstrations (the same for both agents), weights and batches"),
        ("Training", f"{plan.steps:,} gradient steps of {plan.batch_size} samples, the same for both agents"),
        ("Evaluation", f"{plan.episodes} episodes, the same for every agent, of the training's end"),
        (
            "Animation",
            f"the middle one of {len(plan.seeds) * plan.episodes} episodes by PIDM's lead: training seed "
            f"{episode['training_seed']}, episode seed {episode['episode_seed']}, "
            f"BC {episode['bc_goals']} and PIDM {episode['pidm_goals']} of {num_goals} goals",
        ),
        (
            "Chosen beforehand",
            "the task, where the paper's Table 1 has its largest gain, the numbers of demonstrations and the seeds: "
            "none is picked by its result",
        ),
    ]


def score_rows(result: Result) -> Table:
    """Mean and standard deviation over seeds of the goal ratio, a row for each agent and kind of demonstrations."""
    sizes = sorted({size for curve in result.curves.values() for size in curve.sizes})
    rows = []
    for (kind, agent), curve in result.curves.items():
        cells = dict(zip(curve.sizes, zip(mean_curve(curve), std_curve(curve), strict=True), strict=True))
        texts = [_score(*cells[size]) if size in cells else NONE for size in sizes]
        rows.append((f"{agent_title(agent)}, {demos_title(kind)}", *texts))
    note = f"Mean ± standard deviation over seeds {', '.join(map(str, result.plan.seeds))}."
    title = f"Goals reached on {TASKS[result.plan.task].title}, by number of demonstrations"
    return Table("scores", title, ("", *map(str, sizes)), rows, note, result.records)


def _score(mean: float, std: float) -> str:
    return f"{mean:.0%}" if np.isnan(std) else f"{mean:.0%} ± {100 * std:.0f}"


def write_pictures(result: Result, folder: Path) -> None:
    """The GIF, the curve and the traces."""
    write_video(animation(result), folder / GIF, fps=30, every=EVERY)
    _draw_curve(result, folder / "curve.png")
    figure = plot_traces({demos_title(kind): dataset for kind, dataset in result.demos.items()})
    with atomic_file(folder / "traces.png") as temporary:
        figure.savefig(temporary, dpi=160, format="png")


def animation(result: Result, pane: int = PANE) -> list[Frame]:
    """Both agents in the shown episode; who is done waits."""
    layout = TASKS[result.plan.task].layout
    num_goals = layout.num_goals
    longest = max(map(len, result.states.values()))
    frames = []
    for step in [*range(longest), *[longest - 1] * (EVERY * PAUSE)]:
        panes, titles = [], []
        for agent, states in result.states.items():
            now = states[: step + 1]
            panes.append(render_state(layout, now[-1], pane, trace=now[:, :2]))
            titles.append(f"{agent_title(agent)}: {int(now[-1, 4::3].sum())} of {num_goals} goals")
        frames.append(side_by_side(panes, titles))
    return frames


def curve_figure(result: Result) -> Figure:
    """The human-like demonstrations' curve of both agents."""
    lines = tuple(_line(result.curves["human-like", agent]) for agent in AGENTS)
    caption = f"Mean over {len(result.plan.seeds)} seeds, shaded by the standard deviation. 1 is all goals, in order."
    title = f"{TASKS[result.plan.task].title}: goal ratio"
    return Figure("curve", title, caption, (Panel(title, lines),))


def _line(curve: Curve) -> Line:
    return Line(agent_title(curve.agent), curve.agent, curve.sizes, mean_curve(curve), std_curve(curve), np.nan)


def _draw_curve(result: Result, path: Path) -> None:
    """The curve for slides; the page draws its own in its colours."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    panel = curve_figure(result).panels[0]
    with matplotlib.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        canvas = Canvas(figsize=(6.4, 4.0), layout="constrained")
        ax = canvas.subplots()
        for line in panel.lines:
            colour, curve = TONES[line.tone], result.curves["human-like", line.tone]
            ax.plot(line.sizes, line.mean, "-o", color=colour, linewidth=2, label=line.label)
            low, high = line.mean - np.nan_to_num(line.std), line.mean + np.nan_to_num(line.std)
            ax.fill_between(line.sizes, low.clip(0, 1), high.clip(0, 1), color=colour, alpha=0.14, linewidth=0)
            points: dict[str, Any] = {"color": colour, "s": 14, "alpha": 0.55, "linewidths": 0}
            for size, scores in zip(line.sizes, seed_scores(curve), strict=True):
                ax.scatter([size] * len(scores), scores, **points)
        ax.set(xscale="log", ylim=(-0.02, 1.02), xlabel="human-like demonstrations", ylabel="goals reached")
        ax.set_xticks(panel.lines[0].sizes, map(str, panel.lines[0].sizes))
        ax.minorticks_off()
        ax.yaxis.set_major_formatter("{x:.0%}")
        ax.grid(axis="y", alpha=0.25)
        seeds = ", ".join(map(str, result.plan.seeds))
        ax.set_title(f"{TASKS[result.plan.task].title}, seeds {seeds}", fontsize=12)
        ax.legend(frameon=False, loc="upper left")
        with atomic_file(path) as temporary:
            canvas.savefig(temporary, dpi=160, format="png")


def next_steps(result: Result, out: Path) -> list[tuple[str, str]]:
    """What to do now, and the commands."""
    task = result.plan.task
    return [
        ("Race the agent yourself", f"pidm-nav play --task {task} --agent {out}/agents/pidm"),
        (
            "Record yourself and train on it",
            f"pidm-nav record --task {task} --episodes 10 --out my_demos.npz\n"
            "pidm-nav train --agent pidm --demos my_demos.npz --out runs/mine\n"
            "pidm-nav evaluate runs/mine --video mine.mp4",
        ),
        (
            "The whole comparison, with the paper's numbers beside it",
            "pidm-nav sweep --tasks all --num-demos 1,5,20 --seeds 5 --out results\npidm-nav report results",
        ),
    ]


def render_page(result: Result, folder: Path, out: Path) -> str:
    """The whole page; pictures are inside it, and `out` is how commands name the folder."""
    plan = result.plan
    tiles = []
    for agent in reversed(AGENTS):
        ratio = _last(result, "human-like", agent)
        tiles.append(
            f"<div class='tile {agent}'><b>{ratio:.0%}</b><span>of the goals reached by {agent_title(agent)} "
            f"after {plan.shown} human-like demonstrations</span></div>"
        )
    wins, pairs = _wins(result)
    tiles.append(
        f"<div class='tile'><b>{wins} of {pairs}</b><span>pairs of trainings on the same human-like "
        "demonstrations in which PIDM is better</span></div>"
    )
    steps = "".join(
        f"<h3>{escape(title)}</h3><pre>{escape(commands)}</pre>" for title, commands in next_steps(result, out)
    )
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in how_made(result))
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>pidm-nav: quickstart</title>\n<style>{STYLE}{MORE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        "<h1>Does predicting the future help your policy?</h1>\n"
        "<p class='lead'>Behaviour cloning (BC) copies actions. A predictive inverse dynamics model (PIDM) first "
        "predicts where the expert would be next, then the action that leads there. Both were just trained on this "
        f"machine, on the same few demonstrations.</p>\n<p class='found'>{escape(headline(result))}</p>\n"
        f"<div class='tiles'>{''.join(tiles)}</div>\n"
        f"<section><h2>The same episode, twice</h2>{_image(folder / GIF, 'BC and PIDM side by side')}</section>\n"
        f"<section><h2>How many demonstrations are needed?</h2>{draw_figure(curve_figure(result))}"
        f"<h3>{escape(score_rows(result).title)}</h3>{_table(score_rows(result))}</section>\n"
        "<section><h2>What they learned from</h2><p class='lead'>A script with a gamepad player's habits, and a "
        "planner that always takes the same way.</p>"
        f"{_image(folder / 'traces.png', 'Demonstrations on the map', 'map')}</section>\n"
        f"<section><h2>Next</h2>{steps}</section>\n"
        f"<section><h2>How it was made</h2><dl>{facts}</dl></section>\n</main>\n</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in table.header)
    body = "".join(
        f"<tr><th scope='row'>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in table.rows
    )
    return (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"<p class='note'>{escape(table.note)}</p>"
    )


def _image(path: Path, words: str, kind: str = "") -> str:
    format_ = path.suffix.removeprefix(".")
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"<img class='{kind}' alt='{escape(words)}' src='data:image/{format_};base64,{data}'>"


def write_tables(result: Result, folder: Path) -> None:
    """The table to read as Markdown, and a line for every training as CSV."""
    table = score_rows(result)
    facts = "\n".join(f"- {name}: {value}" for name, value in how_made(result))
    text = f"{table.markdown()}\n{headline(result)}\n\n{facts}\n"
    (folder / "scores.md").write_text(text, encoding="utf-8")
    (folder / "scores.csv").write_text(table.csv(), encoding="utf-8", newline="")
