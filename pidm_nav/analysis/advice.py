"""advise(): recommend BC, PIDM or delta-PIDM for demonstrations, from offline tests and a small experiment.

The rule of the advice was fixed in docs/results/plans/advise.md before it was tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pidm_nav.analysis.held_out import FOLDS, VectorPolicy, Vectors, find_spaces, folds, part_errors
from pidm_nav.analysis.offline import action_effect, pushes
from pidm_nav.analysis.states import check_states
from pidm_nav.console import counted, progress_bar
from pidm_nav.demos.dataset import MIN_LINEAR_R2, DemoDataset
from pidm_nav.demos.failed import without_failed
from pidm_nav.limits import MAX_SEED, check_number
from pidm_nav.plots import agent_color, agent_title, panels, task_title, tidy
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.rollouts.rollout import episode_seeds
from pidm_nav.seeds import VALIDATION
from pidm_nav.statistics import Mean, estimate_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS = ("bc", "pidm", "delta-pidm")
MAX_EPISODES = 50  # demonstrations used
MARGIN = 0.05  # smaller differences between scores do not decide
MIN_SCORE = 0.1  # of the best agent; below it, confidence is low
Means = Mapping[str, Mean]
Scores = Mapping[str, Sequence[float]]


class Decision(NamedTuple):
    """Result of the rule."""

    agent: str
    sure: str  # high, moderate or low
    reason: str


@dataclass(frozen=True)
class Advice:
    """Recommended agent with its confidence and reasons; means are over held-out episodes with 95% intervals."""

    task: str
    episodes: int  # number of demonstrations used
    failed: int  # number of failed demonstrations
    goals_vary: bool  # whether goals vary between demonstrations
    errors: Means  # mean squared action errors / variance: bc, AGENT/FUTURES, and change (a linear regression)
    restoring: Means  # fraction of a sideways push that each agent undoes
    steers_back: Means  # that fraction minus BC's, for each PIDM
    metric: str
    scores: Scores  # mean score of each agent per fold; empty without rollouts
    agent: str
    sure: str  # confidence: high, moderate or low
    sentence: str

    @property
    def linear_r2(self) -> float:
        """Fraction of the actions' variance that a linear regression on changes of state explains."""
        return 1 - self.errors["change"].value if self.errors else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain JSON values, with None for undefined intervals."""
        found = {**asdict(self), "linear_r2": self.linear_r2 if self.errors else None}
        for name in ("errors", "restoring", "steers_back"):
            means: Means = getattr(self, name)
            plain = {key: mean._asdict().items() for key, mean in means.items()}
            found[name] = {key: {k: None if np.isnan(v) else v for k, v in each} for key, each in plain.items()}
        return found

    def plot(self) -> Figure:
        """Plot the errors, the restoring coefficients and the scores, with 95% intervals."""
        bounds = (-np.inf, np.inf) if self.metric == "return" else (0, 1)
        scores = {name: estimate_mean(values, bounds=bounds) for name, values in self.scores.items()}
        tables = {"action error / variance": self.errors, "restoring coefficient": self.restoring, self.metric: scores}
        shown = [(title, dict(reversed(list(table.items())))) for title, table in tables.items() if table]
        if not shown:
            raise ValueError("there is nothing to plot: give more than one demonstration, or rollouts=True")
        figure, axes = panels(len(shown), width=4.2, height=3.2, columns=3)
        for ax, (title, table) in zip(axes, shown, strict=True):
            for row, (key, mean) in enumerate(table.items()):
                color = "0.5" if key == "change" else agent_color(key.partition("/")[0])
                ax.plot([mean.low, mean.high], [row, row], color=color, linewidth=3, alpha=0.4)
                ax.plot(mean.value, row, "o", color=color)
            ax.set_yticks(range(len(table)), [_error_title(key) for key in table])
            ax.set_xlabel(title)
            ax.margins(y=0.15)
            tidy(ax)
        figure.suptitle(f"{task_title(self.task)}: {agent_title(self.agent)} (sure: {self.sure})", fontsize=12)
        return figure


def _error_title(key: str) -> str:
    """Return the title of an error such as pidm/nearest in figures."""
    agent, _, futures = key.partition("/")
    name = "linear, from change" if key == "change" else agent_title(agent)
    return f"{name}, {futures} future" if futures else name


def decide(
    goals_vary: bool,
    linear_r2: float,
    steers_back: Means,
    scores: Scores,
    margin: float = MARGIN,
    least: float = MIN_SCORE,
) -> Decision:
    """Apply the rule of docs/results/plans/advise.md; without held-out episodes `steers_back` is empty."""
    few = not steers_back or min(mean.units for mean in steers_back.values()) < FOLDS
    agent = "delta-pidm" if few or linear_r2 >= MIN_LINEAR_R2 else "pidm"
    title = agent_title(agent)
    if goals_vary:
        agent, reason = "bc", "goals differ between episodes, so a lookup would steer toward another episode's goal"
    elif few:
        reason = f"{title} tracks a demonstration if goals never vary, and these are too few to test that"
    elif steers_back[agent].low > 0:
        more = f"it undoes {steers_back[agent].value:.2f} more of a sideways push than BC"
        reason = f"goals do not vary, and {title} steers back to the demonstrations ({more})"
    else:
        agent, reason = "bc", f"goals do not vary, but {title} does not steer back more than BC"
    if not scores:
        return Decision(agent, "low", f"{reason}; without rollouts")
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    best = max(means, key=lambda name: means[name])
    overruled = agent not in means or means[best] > means[agent] + margin
    agent = best if overruled else agent
    behind = any((np.subtract(values, scores[agent]) > margin).any() for values in scores.values())
    shown = ", ".join(f"{agent_title(name)} {mean:.2f}" for name, mean in means.items())
    sure = "low" if few or means[best] < least else "moderate" if overruled or behind else "high"
    return Decision(agent, sure, f"{reason}; rollouts {'overrule' if overruled else 'do not overrule'} that ({shown})")


def advise(
    demos: DemoDataset,
    *,
    rollouts: bool = True,
    episodes: int = 20,
    seed: int = 0,
    steps: int | None = None,
    progress: bool = False,
) -> Advice:
    """Recommend an agent for demonstrations.

    Args:
        demos: demonstrations of any task, with actions and with states as observations.
        rollouts: also test the agents in rollouts, if the environment can be made; their scores decide.
        episodes: number of validation episodes per agent and fold.
        seed: seed of the folds, weights and batches.
        steps: number of gradient steps. Default: that of the preset `fast`.
        progress: show a progress bar.
    """
    check_number("the seed", seed, 0, MAX_SEED - FOLDS)
    episode_seeds(episodes, 0)
    check_states(demos)
    if not demos.action_dim:
        raise ValueError("these demonstrations have no actions: give demonstrations with actions")
    used = without_failed(demos)
    used = used[np.sort(np.random.default_rng(seed).permutation(len(used))[:MAX_EPISODES])]
    study = _Study(used, seed, steps)
    study.run(episodes if rollouts else 0, progress)
    restoring = study.restoring
    steers_back = {name: np.subtract(restoring[name], restoring["bc"]).tolist() for name in AGENTS[1:] if restoring}
    errors, restoring_means, steers_back_means = (
        {key: estimate_mean(values) for key, values in each.items()} for each in (study.errors, restoring, steers_back)
    )
    limits = (MARGIN, MIN_SCORE)
    if study.metric == "return":
        limits = (MARGIN * float(np.mean([abs(each.rewards.sum()) for each in used])), -np.inf)
    linear_r2 = 1 - errors["change"].value if errors else float("nan")
    agent, sure, reason = decide(used.goals_vary, linear_r2, steers_back_means, study.scores, *limits)
    first, total = "", counted(len(demos), "demonstration")
    if demos.num_failed:
        first = f"{demos.num_failed} of {total} failed: leave them out (demos edit --keep successes). "
    if demos.num_failed == len(demos):
        first = "No demonstration succeeds: record others first. "
    return Advice(
        task=demos.task,
        episodes=len(used),
        failed=demos.num_failed,
        goals_vary=used.goals_vary,
        errors=errors,
        restoring=restoring_means,
        steers_back=steers_back_means,
        metric=study.metric,
        scores=study.scores,
        agent=agent,
        sure=sure,
        sentence=f"{first}Train {agent}: {reason}.",
    )


class _Study:
    """Agents that are trained on folds, tested on held-out episodes, and tested in rollouts."""

    def __init__(self, demos: DemoDataset, seed: int, steps: int | None) -> None:
        self.demos, self.seed, self.steps = demos, seed, steps
        self.spaces, self.metric = find_spaces(demos)
        self.vectors = Vectors(self.spaces[1])
        data = self.vectors.dataset(demos)
        self.variance = data.transitions().action.var(axis=0, dtype=np.float64).mean()
        if self.variance < 1e-12:
            raise ValueError(f"the actions of these demonstrations of {demos.task} never vary: give others")
        self.effect = action_effect(data)
        self.errors: dict[str, list[float]] = {}
        self.restoring: dict[str, list[float]] = {}
        self.scores: dict[str, list[float]] = {}

    def run(self, rollouts: int, progress: bool) -> None:
        """Train and test the agents of all folds."""
        from pidm_nav.agents import train

        parts = folds(self.demos, np.random.default_rng(self.seed))
        settings: dict[str, Any] = {"progress": False, "env_spaces": self.spaces}
        settings |= {} if self.steps is None else {"steps": self.steps}
        with progress_bar("agents", len(parts) * len(AGENTS), show=progress) as advance:
            for number, (training, held_out) in enumerate(parts):
                agents: dict[str, Any] = {}
                learned: Any = (
                    {"predictor": f"learned(steps={self.steps})"} if self.steps and training.goals_vary else {}
                )
                for name in AGENTS:
                    own: Any = learned if name == "delta-pidm" else {}
                    agents[name] = train(name, training, "fast", seed=self.seed + number, **settings, **own)
                    if rollouts and self.metric:
                        first, arguments = VALIDATION.start, self.demos.env_kwargs
                        found = evaluate(agents[name], self.demos.task, rollouts, first, **arguments).scores
                        self.scores.setdefault(name, []).append(float(found.mean()))
                    advance(1)
                if held_out is not None:
                    self.ask(agents, training, self.vectors.dataset(held_out))

    def ask(self, agents: Mapping[str, Any], training: DemoDataset, asked: DemoDataset) -> None:
        """Measure errors and restoring coefficients on held-out episodes."""
        for key, found in part_errors(agents, training, asked, self.vectors, self.steps).items():
            self.errors.setdefault(key, []).extend((found / self.variance).tolist())
        for name, agent in agents.items():
            policy, rng = VectorPolicy(agent, self.vectors), np.random.default_rng(self.seed)
            undone, pushed = pushes(policy, asked, self.effect, rng)
            self.restoring.setdefault(name, []).extend((undone / np.maximum(pushed, 1e-12)).tolist())
