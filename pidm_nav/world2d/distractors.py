"""Exogenous noise: parts of the observation that change by themselves and say nothing about the task."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

NoiseKind = Literal["iid", "random_walk"]

FEATURE_STD: dict[NoiseKind, float] = {"iid": 1.0, "random_walk": 0.3}
FEATURE_LIMIT: dict[NoiseKind, float] = {"iid": 10.0, "random_walk": 100.0}
"""Distractor features are clipped to so many standard deviations, which gives the space finite bounds."""


class ExogenousNoise(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds distractors to the observations; what happens in the environment stays the same.

    State observations (D,) get `features` numbers appended: fresh normal noise in every step (`"iid"`), or a
    walk from 0 with normal steps (`"random_walk"`). In pixel observations the bright pixels, which are the
    floor, are replaced by fresh uniform noise, or by a walk of each pixel with uniform steps; walls, agent
    and goals stay visible. `reset(seed=)` seeds the noise too, from a stream of its own.

    Args:
        env: an environment with vector or uint8 image observations.
        kind: `"iid"` or `"random_walk"`.
        features: how many distractor features to append to state observations.
        std: of the features, or of their steps; None is 1.0 for `"iid"` and 0.3 for `"random_walk"`.
        pixel_low: the darkest noise in pixel observations; pixels with a darker channel are left alone.
        pixel_high: one above the brightest noise.
        pixel_step: a pixel walks by at most this much in a step.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        kind: NoiseKind = "iid",
        features: int = 8,
        std: float | None = None,
        pixel_low: int = 200,
        pixel_high: int = 256,
        pixel_step: int = 16,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            kind=kind,
            features=features,
            std=std,
            pixel_low=pixel_low,
            pixel_high=pixel_high,
            pixel_step=pixel_step,
        )
        gym.Wrapper.__init__(self, env)
        if kind not in get_args(NoiseKind):
            raise ValueError(f"kind is {kind!r}: choose 'iid' or 'random_walk'")
        if features < 1:
            raise ValueError(f"features is {features}: append one at least")
        if std is not None and not (np.isfinite(std) and std > 0):
            raise ValueError(f"std is {std}: it must be a positive number")
        if not 0 <= pixel_low < pixel_high <= 256 or pixel_step < 1:
            raise ValueError(
                f"pixel noise from {pixel_low} to {pixel_high} in steps of {pixel_step}: "
                "use 0 <= pixel_low < pixel_high <= 256 and a step of 1 or more"
            )
        self.kind: NoiseKind = kind
        self.features = features
        self.std = FEATURE_STD[kind] if std is None else std
        self.pixel_low = pixel_low
        self.pixel_high = pixel_high
        self.pixel_step = pixel_step
        self._noise_random = np.random.default_rng()
        self._walk: NDArray[Any] | None = None  # the noise of the step before
        inner = env.observation_space
        if not isinstance(inner, spaces.Box) or len(inner.shape) not in (1, 3):
            raise ValueError(f"noise needs a vector or an image to work on, the observation space is {inner}")
        self._pixels = len(inner.shape) == 3
        if self._pixels and inner.dtype != np.uint8:
            raise ValueError(f"noise on images needs dtype uint8, the observations have {inner.dtype}")
        if not self._pixels:
            limit = np.full(features, self.std * FEATURE_LIMIT[kind], dtype=inner.dtype)
            low, high = np.concatenate([inner.low, -limit]), np.concatenate([inner.high, limit])
            self.observation_space = spaces.Box(low, high, dtype=inner.dtype.type)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode and a new random walk."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            # A spawned stream is independent of the environment's, which uses the seed itself.
            self._noise_random = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        self._walk = None
        return self._disturb(observation), info

    def step(self, action: Any) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        """Step the environment and the noise."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._disturb(observation), reward, terminated, truncated, info

    def _disturb(self, observation: NDArray[Any]) -> NDArray[Any]:
        if self._pixels:
            # Channel by channel: NumPy is many times slower along an axis of three.
            darkest = reduce(np.minimum, np.moveaxis(observation, -1, 0))
            bright = (darkest >= self.pixel_low)[..., None]
            return np.where(bright, self._pixel_noise(observation.shape), observation)
        return np.concatenate([observation, self._feature_noise().astype(observation.dtype)])

    def _feature_noise(self) -> NDArray[Any]:
        """(features,) clipped to the observation space's bounds."""
        limit = self.std * FEATURE_LIMIT[self.kind]
        noise = self._noise_random.normal(0.0, self.std, self.features)
        if self.kind == "random_walk":
            noise = np.zeros(self.features) if self._walk is None else self._walk + noise
        self._walk = np.clip(noise, -limit, limit)
        return self._walk

    def _pixel_noise(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        if self.kind == "iid" or self._walk is None:
            noise = self._noise_random.integers(self.pixel_low, self.pixel_high, shape, dtype=np.int16)
        else:
            step = self._noise_random.integers(-self.pixel_step, self.pixel_step + 1, shape, dtype=np.int16)
            noise = np.clip(self._walk + step, self.pixel_low, self.pixel_high - 1)
        self._walk = noise
        return noise.astype(np.uint8)
