"""PPO from a trained PIDM: the predictor stays part of the policy, and PPO trains the inverse dynamics model."""

from stable_baselines3.common.env_util import make_vec_env

import pidm_nav  # registers the tasks
from pidm_nav.agents.sb3 import CriticFirst, to_agent, to_ppo

STEPS = 8_000

if __name__ == "__main__":
    demos = pidm_nav.load_demos("zigzag/human-like").sample(1, seed=0)
    agent = pidm_nav.train("pidm", demos, progress=False)
    print("PIDM:    ", pidm_nav.evaluate(agent, "zigzag", 20))
    ppo = to_ppo(agent, make_vec_env("PIDMNav-Zigzag-v0", n_envs=8, seed=2_500_000))
    ppo.learn(STEPS, callback=CriticFirst(STEPS // 2))
    print("with PPO:", pidm_nav.evaluate(to_agent(ppo), "zigzag", 20))
