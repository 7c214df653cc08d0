"""Exogenous noise: distractors in observations that carry no information about the task."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from pidm_nav.limits import MAX_FEATURES, check_number

NoiseKind = Literal["iid", "random_walk"]

FEATURE_NOISE: dict[NoiseKind, tuple[float, float]] = {"iid": (1.0, 10.0), "random_walk": (0.3, 100.0)}
"""Default standard deviation of features, and their bound in standard deviations."""


class ExogenousNoise(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Wrapper that adds distractors to the observations; the dynamics do not change.

    Vectors (D,) get `features` more values: independent normal noise in every step (`"iid"`), or a random walk from 0
    with normal steps (`"random_walk"`). In images, bright pixels (the floor) are replaced by uniform noise in every
    step, or by a random walk of each pixel with uniform steps; walls, agent and goals stay visible. `reset(seed=...)`
    also seeds the noise, whose stream is independent of the environment's.

    Args:
        env: environment with vector or uint8 image observations.
        kind: `"iid"` or `"random_walk"`.
        features: number of distractor features in vectors.
        std: standard deviation of the features, or of the steps of their random walk. Default: 1.0 for `"iid"`, 0.3 for
            `"random_walk"`.
        pixel_low: darkest noise in images; pixels with a darker channel do not change.
        pixel_high: brightest noise in images, plus one.
        pixel_step: largest step of a pixel's random walk.
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
        pixels: dict[str, Any] = {"pixel_low": pixel_low, "pixel_high": pixel_high, "pixel_step": pixel_step}
        RecordConstructorArgs.__init__(self, kind=kind, features=features, std=std, **pixels)
        gym.ObservationWrapper.__init__(self, env)
        if kind not in get_args(NoiseKind):
            raise ValueError(f"kind is {kind!r}: choose 'iid' or 'random_walk'")
        default_std, limit = FEATURE_NOISE[kind]
        self.kind, self.features, self.std = kind, features, default_std if std is None else std
        check_number("features", features, 1, MAX_FEATURES)
        check_number("std", self.std, 1e-30, 1e30, integer=False)
        check_number("pixel_high", pixel_high, 1, 256)
        check_number("pixel_low", pixel_low, 0, pixel_high - 1)
        check_number("pixel_step", pixel_step, 1, 256)
        inner = env.observation_space
        if not isinstance(inner, spaces.Box) or len(inner.shape) not in (1, 3):
            raise ValueError(f"the observation space is {inner}: give an environment with vectors or images")
        self._pixels = len(inner.shape) == 3
        if self._pixels and inner.dtype != np.uint8:
            raise ValueError(f"the images have dtype {inner.dtype}: give uint8 images")
        self.pixel_low, self.pixel_high, self.pixel_step = pixel_low, pixel_high, pixel_step
        self._limit = self.std * limit
        self._noise_random = np.random.default_rng()
        self._walk: NDArray[Any] | None = None  # noise of the previous step; None at the start of an episode
        if not self._pixels:
            limits = np.full(features, self._limit, dtype=inner.dtype)
            low, high = np.concatenate([inner.low, -limits]), np.concatenate([inner.high, limits])
            self.observation_space = spaces.Box(low, high, dtype=inner.dtype.type)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode and a new random walk."""
        if seed is not None:
            # a spawned stream is independent of the environment's
            self._noise_random = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        self._walk = None
        return super().reset(seed=seed, options=options)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Step the noise, and add it to an observation."""
        if not self._pixels:
            self._walk = self._feature_noise()
            return np.concatenate([observation, self._walk.astype(observation.dtype)])
        # channel by channel, as NumPy is many times slower along an axis of three
        darkest = reduce(np.minimum, np.moveaxis(observation, -1, 0))
        bright = (darkest >= self.pixel_low)[..., None]
        self._walk = self._pixel_noise(observation.shape)
        return np.where(bright, self._walk.astype(np.uint8), observation)

    def _feature_noise(self) -> NDArray[np.float64]:
        """Return (features,) noise, clipped to the bounds of the observation space."""
        noise = self._noise_random.normal(0.0, self.std, self.features)
        if self.kind == "random_walk":
            noise = np.zeros(self.features) if self._walk is None else self._walk + noise
        return np.clip(noise, -self._limit, self._limit)

    def _pixel_noise(self, shape: tuple[int, ...]) -> NDArray[np.int16]:
        if self.kind == "iid" or self._walk is None:
            return self._noise_random.integers(self.pixel_low, self.pixel_high, shape, dtype=np.int16)
        step = self._noise_random.integers(-self.pixel_step, self.pixel_step + 1, shape, dtype=np.int16)
        return np.clip(self._walk + step, self.pixel_low, self.pixel_high - 1)
