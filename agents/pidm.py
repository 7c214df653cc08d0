"""PIDM: a state predictor says which state comes next, an inverse dynamics model which action leads there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import FRAME_NETWORKS, FROZEN, PIXELS, AgentConfig, Counts, Part, Preset, Share, TrainConfig
from pidm_nav.agents.networks import Array, Encoder, Head
from pidm_nav.agents.observations import Samples
from pidm_nav.agents.policy import Loss, NavPolicy
from pidm_nav.agents.predictors import PREDICTORS, LearnedPredictor, StatePredictor
from pidm_nav.agents.retrieval import Distance
from pidm_nav.demos.dataset import DemoDataset


@dataclass(frozen=True)
class PIDMConfig(AgentConfig):
    """Settings of PIDM; the defaults are the paper's for 2D navigation."""

    horizons: Counts = (1,)  # Steps ahead, k, that the inverse dynamics model is trained with.
    act_horizon: int | None = None  # Steps ahead when acting; defaults to the smallest of the horizons.
    # What predicts the future state: nearest, follow, time or learned; auto is learned where something that stays the
    # same within an episode, such as a goal's place, differs between demonstrations, and follow otherwise.
    predictor: str = "nearest"
    distance: Distance = "l2"  # Distance between states for the nearest-neighbor predictor.
    train_on_predicted: bool = False  # Train on the predictor's future states instead of those in the data.
    end_to_end: bool = False  # Train the learned predictor through the inverse dynamics model as well.
    idm: Literal["states", "change"] = "states"  # What shows the future: its state, or the change that leads there.
    state_noise: Part = 0.1  # Noise on the state beside a change, in standard deviations of demonstrated states.
    change_noise: Part = 0.3  # Noise on demonstrated changes, in units of the usual change.
    # Part of the changes that are shown, in training, beside the state of another one; none where a linear regression
    # on the changes explains less than 40% of the actions, as under gravity.
    state_swap: Part = 0.5
    idm_share: Share = 0.8  # Part of each batch that comes from the inverse dynamics model's own data, if it has any.

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.horizons or len(set(self.horizons)) != len(self.horizons):
            raise ValueError(f"horizons {self.horizons} must be different numbers of steps, each at least 1")
        if self.act_horizon is not None and self.act_horizon not in self.horizons:
            raise ValueError(f"act_horizon {self.act_horizon} is not among the trained horizons {self.horizons}")
        if self.predictor not in (known := [*PREDICTORS, "auto"]):
            raise ValueError(f"predictor '{self.predictor}' is not known: choose one of {', '.join(known)}")
        if self.end_to_end and self.predictor != "learned":
            raise ValueError("end_to_end needs predictor 'learned': the others have nothing to train")
        if self.predicted and len(self.horizons) > 1:
            raise ValueError("training on predicted futures takes one horizon, as the predictor has one")

    @property
    def predicted(self) -> bool:
        """Whether the inverse dynamics model is trained on predicted future states."""
        return self.train_on_predicted or self.end_to_end


LARGEST_CHANGE = 4.0  # of a feature, in usual changes: beyond it, a wanted change only says the direction
RARE = 0.02  # a feature that changes in a smaller part of the data's steps does not tell which action it took
TELLING = 0.4  # part of the actions' variance that changes must tell by themselves to be shown beside other states
CONSTANT = 0.05  # a feature that differs in a smaller part of other data's states tells which data a state is from

# for images, the paper's settings for its 3D world
FRAMES: dict[str, Any] = {**FRAME_NETWORKS, "horizons": (1, 6, 11, 16, 21, 26), "predictor": "time"}


class PIDM(NavPolicy):
    """An inverse dynamics model of one of two forms, and a predictor of its futures.

    idm="states", the paper's: one encoder, 512-1024-256 with batch norm, for both states, then 256 and tanh. A step is
    a small part of a room, so the embeddings are nearly equal, and while there are few demonstrations, it is easier to
    learn the actions by heart from the state alone.

    idm="change": the change from state to future, in units of the usual change, beside an embedding of the state, which
    tells apart where the same change needs different actions. But in demonstrations the state alone gives the action
    away, and from play alone it misleads too (docs/results/one_demo/search.md). So in training half of the changes
    are shown beside the state of another one: what a change says then holds in all states but those in which
    most data contradict it. That is not done where the same change needs other actions in most states, as in Pendulum,
    which a linear regression of actions on changes tells. Noise on demonstrated changes fills the gaps between the few
    that one demonstration shows.
    """

    name: ClassVar[str] = "pidm"
    config_class: ClassVar[type[AgentConfig]] = PIDMConfig
    presets: ClassVar[Mapping[str, Preset]] = {
        **NavPolicy.presets,
        "fast": Preset(
            PIDMConfig(idm="change", predictor="auto", encoder_sizes=(128, 128, 64), head_sizes=(128, 128)),
            TrainConfig(learning_rate=2e-3, steps=1500, batch_size=64, loss="l1"),
        ),
        "pixels": Preset(PIDMConfig(**FRAMES), TrainConfig(learning_rate=1e-3, **PIXELS)),
        "frozen": Preset(PIDMConfig(frames="random", **FRAMES), TrainConfig(learning_rate=1e-3, **FROZEN)),
    }
    config: PIDMConfig
    encoder: nn.Module
    predictor: StatePredictor
    usual_change: Tensor
    spread: Tensor
    visible: Tensor

    def build(self, encoder: nn.Module | None) -> None:
        """Make encoder, head and predictor."""
        horizons = self.config.horizons
        self.horizon = self.config.act_horizon or min(horizons)
        self.own_rows = 0  # rows of the samples that are demonstrations
        self.state_swap = self.config.state_swap  # or none, once the data are known
        self.sees_change = self.config.idm == "change"
        if self.sees_change:
            encoder = encoder or Encoder(self.state_size, self.config.encoder_sizes, norm=False)
            self.register_buffer("usual_change", torch.ones(self.state_size))
            self.register_buffer("spread", torch.zeros(self.state_size))
            self.register_buffer("visible", torch.ones(self.state_size))
        self.encoder, size = self.make_encoder(encoder)
        one_hot = len(horizons) if len(horizons) > 1 else 0
        beside = self.state_size if self.sees_change else size
        self.head = Head(size + beside + one_hot, self.action_size, self.config.head_sizes)
        if self.observations.moving and (self.config.predicted or self.sees_change):
            raise ValueError(
                f"futures cannot be predicted, nor changes measured, while frames '{self.config.frames}' is trained: "
                "take a frozen encoder, such as frames='random', or train on the data's futures with idm='states'"
            )
        self.fitted_to: DemoDataset | None = None  # the states that the predictor is fitted to
        self.predictor = self._make_predictor()

    def _make_predictor(self) -> StatePredictor:
        """Return a predictor of the configured kind; an automatic one follows until the demonstrations are known."""
        kind = "follow" if self.config.predictor == "auto" else self.config.predictor
        predictor = PREDICTORS[kind](self.scale, self.config.distance, self.seed)
        if self.config.end_to_end and isinstance(predictor, LearnedPredictor):
            predictor.steps = 0  # its weights are trained with the rest
        return predictor.to(self.scale.center.device)

    def head_input(self, now: Tensor, future: Tensor, which: Tensor | int) -> Tensor:
        """Join what tells of now and of the future, and the one-hot of the horizon's index if several are trained."""
        if len(self.config.horizons) == 1:
            return torch.cat([now, future], dim=1)
        index = torch.as_tensor(which, device=now.device).expand(len(now))
        one_hot = nn.functional.one_hot(index, len(self.config.horizons)).to(now.dtype)
        return torch.cat([now, future, one_hot], dim=1)

    def forward(self, states: Tensor, futures: Tensor, which: Tensor | int = 0, seen: Tensor | None = None) -> Tensor:
        """Return scaled actions (N, A) for scaled states and futures (N, D) and the index of the horizon.

        Beside a change, the states that are `seen` may be others than those that it begins in.
        """
        if self.sees_change:
            now = self.encoder((states if seen is None else seen) * self.visible)
            future = self.change(states, futures)
        else:  # one batch for both, so that batch norm sees states and futures alike
            now, future = self.encoder(torch.cat([states, futures])).chunk(2)
        actions: Tensor = self.head(self.head_input(now, future, which))
        return actions

    def change(self, states: Tensor, futures: Tensor) -> Tensor:
        """Return the changes (N, D) between scaled states and futures, in units of the usual change."""
        usual = torch.where(self.usual_change > 0, self.usual_change, torch.inf)  # 0: such a change is not seen
        return ((futures - states) / usual).clamp(-LARGEST_CHANGE, LARGEST_CHANGE)

    def disturbed(
        self, states: Tensor, futures: Tensor, demonstrated: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return states to see, and futures to reach, that keep training from learning actions by heart."""
        tensor, config = self.observations.tensor, self.config
        swap = tensor(rng.random((len(states), 1)) < self.state_swap)
        seen = torch.where(swap, states[tensor(rng.permutation(len(states)))], states)
        noise = self.spread.sign() * tensor(rng.standard_normal((2, *states.shape), dtype=np.float32))
        seen = seen + config.state_noise * self.spread * noise[0]
        return seen, futures + demonstrated[:, None] * config.change_noise * self.usual_change * noise[1]

    @torch.no_grad()
    def inverse_dynamics(self, states: ArrayLike, futures: ArrayLike, horizon: int | None = None) -> Array:
        """Return the actions (N, A) that lead from raw states (N, D) to raw futures (N, D) in `horizon` steps."""
        self.eval()
        horizon = horizon or self.horizon
        if horizon not in self.config.horizons:
            raise ValueError(f"horizon {horizon} was not trained: choose one of {self.config.horizons}")
        now, then = self.scale(self.observations.tensor(np.array([states, futures], dtype=np.float32)))
        return self.to_actions(self(now, then, self.config.horizons.index(horizon)))

    def act(self, states: Array, memory: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Predict the future states, then the actions that lead there; the memory is the predictor's."""
        memory = self.predictor.advance(memory, episode_start, states)
        return self.inverse_dynamics(states, self.predictor.predict(states, memory)), memory

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = (), idm: Sequence[DemoDataset] = ()) -> None:
        """Fit the scales, and the predictor to the demonstrations and to what else it may see."""
        super().prepare(dataset)
        if self.config.predictor == "auto":
            self.config = replace(self.config, predictor="learned" if dataset.goals_vary else "follow")
            self.predictor = self._make_predictor()
        everything = DemoDataset.concatenate([each.without_actions() for each in (dataset, *extra)])
        longest = max(len(episode) for episode in everything)
        if self.horizon > longest:
            raise ValueError(f"horizon {self.horizon} is too long: no demonstration has more than {longest} steps")
        if self.sees_change:
            self._fit_units(self.observations.embedded(dataset), [self.observations.embedded(each) for each in idm])
        self.own_rows = sum(len(episode.observations) for episode in dataset) if dataset.action_dim else 0
        if self.observations.moving:
            self.demonstrations = everything  # the predictor is fitted once the encoder is trained: see settle
        else:
            self._fit_predictor(everything)

    def settle(self) -> None:
        """Fit the predictor to what a trained encoder makes of the demonstrations."""
        if self.observations.moving:
            with torch.enable_grad():
                self._fit_predictor(self.demonstrations)

    def _fit_units(self, demonstrations: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Measure how much each feature changes over the horizons, and how far demonstrated states are apart.

        Two kinds of features are hidden. The change of one that hardly ever changes, such as the flag of a goal, occurs
        too seldom to learn which action it goes with. And beside a change, the state does not show what is constant in
        other data, such as these flags in play: they would only tell which data a state is from.
        """
        now, future = self._pairs(demonstrations)
        usual = (future - now).square().mean(dim=0).sqrt()
        self.spread.copy_(now.std(dim=0, correction=0))
        self.visible.fill_(1.0)
        changes = [now != future] if demonstrations.action_dim else []
        for data in others:
            states = np.concatenate([episode.observations for episode in data])
            if states.shape[1:] == self.visible.shape:  # others are refused when samples are made of them
                differs = (states != np.median(states, axis=0)).mean(axis=0) >= CONSTANT
                self.visible *= self.observations.tensor(differs)
                changes.append(torch.ne(*self._pairs(data)))
        common = torch.cat(changes).float().mean(dim=0) >= RARE
        self.usual_change.copy_(torch.where(common & (usual > 1e-6), usual, torch.zeros_like(usual)))
        told = self._told_by_change(demonstrations if demonstrations.action_dim else others[0])
        self.state_swap = self.config.state_swap if told >= TELLING else 0.0

    def _told_by_change(self, data: DemoDataset) -> float:
        """Return the part of the actions' variance that a linear regression on the changes explains, in these data."""
        states, actions, futures, *_ = data.transitions(self.horizon)
        actions = self.action_scale(self.observations.tensor(actions)).numpy(force=True)
        scaled = (self.scale(self.observations.tensor(part)) for part in (states, futures))
        inputs = np.column_stack([self.change(*scaled).numpy(force=True), np.ones(len(states))])
        left = actions - inputs @ np.linalg.lstsq(inputs, actions, rcond=None)[0]
        return 1.0 - float(left.var(axis=0).sum() / max(actions.var(axis=0).sum(), 1e-9))

    def _pairs(self, data: DemoDataset) -> tuple[Tensor, Tensor]:
        """Return the scaled states of all steps, once for each horizon, and their futures."""
        pairs = [data.transitions(horizon) for horizon in self.config.horizons]
        now, future = (np.concatenate(part) for part in ([p.state for p in pairs], [p.future for p in pairs]))
        return self.scale(self.observations.tensor(now)), self.scale(self.observations.tensor(future))

    def _fit_predictor(self, dataset: DemoDataset) -> None:
        self.fitted_to = self.observations.embedded(dataset)
        self.predictor.fit(self.fitted_to, self.horizon)

    def predicted_futures(self, datasets: Sequence[DemoDataset]) -> Tensor | None:
        """Return what the predictor says about episodes that it has not seen, for `train_on_predicted`."""
        if not self.config.train_on_predicted or self.config.end_to_end:
            return None
        states = [self.observations.embedded(dataset) for dataset in datasets]
        futures = [part for dataset in states for part in self.predictor.training_futures(dataset)]
        scaled: Tensor = self.scale(self.observations.tensor(np.concatenate(futures)))
        return scaled

    def window(self, samples: Samples) -> int:
        """Return how many consecutive actions are drawn together: more than 1 where that saves encoding states."""
        saves = samples.states.costly or self.config.horizons == (1,)
        return samples.window if saves and not (self.config.predicted or self.sees_change) else 1

    def candidates(self, samples: Samples, batch_size: int) -> tuple[Tensor, int]:
        """Return numbers of pairs of a row, where a window begins, and a horizon, and how many make up a batch."""
        window, count = self.window(samples), len(samples.states)
        if window == 1:
            count = len(samples.rows)
        elif window == count - 1 and not samples.states.costly:  # a window over the whole dataset
            count = 1
        rows, share = torch.arange(count, device=samples.rows.device), self.config.idm_share
        if self.sees_change:  # rows are repeated so that `idm_share` of them are not own ones
            own, others = rows[samples.rows < self.own_rows], rows[samples.rows >= self.own_rows]
            if len(own) and len(others):
                ratio = share * len(own) / ((1 - share) * len(others))
                rows = torch.cat([own.repeat(max(1, round(1 / ratio))), others.repeat(max(1, round(ratio)))])
        horizons = torch.arange(len(self.config.horizons), device=rows.device)
        return (rows[:, None] * len(horizons) + horizons).flatten(), max(1, batch_size // window)

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss, rng: np.random.Generator | None = None) -> Tensor:
        """Return the mean distance of the action between a state and its future to the demonstrated one.

        rows      i    i+1   i+2  ...  i+W        W+1 rows of a window with k=1, each encoded once
        now       z_i  z_i+1 ...  z_i+W-1
        future    z_i+1 z_i+2 ... z_i+W           windows run over the end of episodes: that pair does not count
        """
        horizons = torch.tensor(self.config.horizons, device=chosen.device)
        window = self.window(samples)
        starts, which = chosen // len(horizons), (chosen % len(horizons)).repeat_interleave(window)
        rows = samples.rows[starts] if window == 1 else samples.windows(starts, window)
        if samples.states.costly:
            rows, which = rows[samples.has_action[rows]], which[samples.has_action[rows]]
        futures = torch.minimum(rows + horizons[which], samples.last[rows])
        extra: Tensor | float = 0.0
        if window == 1:
            states, targets = samples.states.gather(torch.cat([rows, futures]), rng).chunk(2)
            if samples.futures is not None:
                targets = samples.futures[rows]
            elif self.config.end_to_end and isinstance(self.predictor, LearnedPredictor):
                extra, targets = self.predictor.measure(states, targets), self.predictor(states)
            seen = None
            if self.sees_change and rng is not None:
                seen, targets = self.disturbed(states, targets, rows < self.own_rows, rng)
            actions = self(states, targets, which, seen)
        else:
            if samples.states.costly:  # any horizon: what several pairs of the batch need is encoded once
                encoded, where = torch.unique(torch.stack([rows, futures]), return_inverse=True)
            else:
                encoded = samples.windows(starts, window + 1)
                grid = torch.arange(len(encoded), device=encoded.device).view(-1, window + 1)
                where = torch.stack([grid[:, :-1].flatten(), grid[:, 1:].flatten()])
            now, future = self.encoder(samples.states.gather(encoded, rng))[where]
            actions = self.head(self.head_input(now, future, which))
        counts = samples.has_action[rows]
        distance = measure(actions, samples.actions[rows]).mean(dim=1) * counts
        return distance.sum() / counts.sum().clamp(min=1) + extra

    def findings(self) -> dict[str, Any]:
        """Return `future_use`: how much other futures change the actions, as a part of the actions' variance.

        The other future of a demonstrated state is where the change of another demonstrated step would lead.
        """
        assert self.fitted_to is not None
        states, _, futures, *_ = self.fitted_to.transitions(self.horizon)
        rows, others = np.random.default_rng(0).integers(len(states), size=(2, 1000))
        own = self.inverse_dynamics(states[rows], futures[rows])
        other = self.inverse_dynamics(states[rows], states[rows] + futures[others] - states[others])
        return {"future_use": float(np.square(own - other).mean() / max(own.var(axis=0).mean(), 1e-9))}

    def memory(self) -> dict[str, Tensor]:
        """Return what the predictor remembers or, for images, more compact tensors that it can be fitted to again."""
        if self.vision is None or self.fitted_to is None or isinstance(self.predictor, LearnedPredictor):
            return self.predictor.memory()
        return self.observations.pack(self.fitted_to)

    def restore(self, memory: dict[str, Tensor]) -> None:
        """Take over the tensors that `memory` returned."""
        self.predictor.horizon = self.horizon
        if self.vision is not None and "vectors" in memory:
            self.fitted_to = self.observations.unpack(memory)
            self.predictor.fit(self.fitted_to, self.horizon)
        else:
            self.predictor.restore(memory)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, predictor={self.predictor.name})"
