"""Supervised and RL steps in turn: PPO and imitation share the agent's modules, so that neither forgets the other."""

from stable_baselines3.common.env_util import make_vec_env

from pidm_nav import BC, Fit, TrainConfig, evaluate, load_demos
from pidm_nav.agents.agent import make_agent
from pidm_nav.agents.sb3 import to_ppo
from pidm_nav.agents.train import dataset_spaces

ROUNDS, IMITATION_STEPS, PPO_STEPS = 3, 200, 2_048

if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    agent = make_agent(BC, dataset_spaces(demos), BC.preset("fast").options)
    fit = Fit(agent, demos, TrainConfig(learning_rate=1e-3, steps=ROUNDS * IMITATION_STEPS))
    ppo = to_ppo(agent, make_vec_env("PIDMNav-Zigzag-v0", n_envs=8, seed=2_500_000))
    for batch in fit.batches():
        fit.step(agent.loss(batch, fit.rng))
        if fit.steps % IMITATION_STEPS == 0:
            print(f"{fit.steps} steps of imitation:", evaluate(fit.ready_copy(), "zigzag", 20))
            if fit.steps < fit.config.steps:
                ppo.learn(PPO_STEPS, reset_num_timesteps=False)
    fit.finish()
