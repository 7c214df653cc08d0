"""The command `train`; its options include those of the chosen agent and of training."""

from __future__ import annotations

import inspect
import io
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import tyro

from pidm_nav.commands.config import options_of, write_config
from pidm_nav.console import console, counted, say, shell_command
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.random_play import collect_random_play
from pidm_nav.demos.failed import Failed
from pidm_nav.demos.formats import load_demos
from pidm_nav.limits import MAX_STEPS, check_number, suggestion
from pidm_nav.seeds import random_play_seed
from pidm_nav.tasks import PAPER_TASKS, find_task

LITTLE_USE = 0.2  # an agent with a smaller future_use barely uses the predicted future


@dataclass(frozen=True)
class Train:
    """Train an agent on demonstrations; after an interruption, rerun the command to resume.

    Options of the agent and of training depend on --agent, and their defaults on --preset.

    Example: pidm-nav train --agent delta-pidm --task maze --demos maze/human-like --num-demos 5 --out runs/x
    """

    agent: str = "delta-pidm"
    """Agent to train; `pidm-nav agents` lists them."""
    task: str | None = None
    """Task to learn. Default: that of the demonstrations."""
    demos: str | None = None
    """File, folder or name of demonstrations. Default: TASK/human-like."""
    num_demos: int | None = None
    """Number of demonstrations to train on, drawn with --seed. Default: all."""
    failed: Failed | None = None
    """Treatment of failed demonstrations: drop, trim after the last reached goal, or keep. Default: drop for PIDM and
    its variants, trim for other agents."""
    predictor_demos: str | None = None
    """More demonstrations for PIDM's state predictor, used without actions. Default: none."""
    idm_demos: str | None = None
    """More data, of any quality, for the inverse dynamics model, or random to collect random play. Default: none."""
    random_play_steps: int = 2000
    """Number of transitions of random play."""
    preset: str | None = None
    """Preset of settings: fast (seconds on a laptop), paper, or paper-fast (the paper's networks, fewer steps); for
    images: pixels (train a CNN) or frozen (frozen encoder). Default: fast; for images pixels, or frozen with a frozen
    encoder."""
    dagger: int = 0
    """Rounds of DAgger, for bc and retrieval-bc: in each, an expert labels the states that the agent visits, and the
    agent is retrained."""
    dagger_expert: str | None = None
    """Expert for --dagger. Default: astar in 2D (use it with --demos TASK/astar), scripted in 3D."""
    eval_episodes: int | None = None
    """Number of rollouts in each of five evaluations during training. Shown with the loss; does not affect training.
    Default: 10 in 2D tasks with states, 0 otherwise."""
    device: str = "cpu"
    """Device: cpu, cuda, mps, or auto (a GPU if there is one)."""
    out: Path | None = None
    """Folder for the agent. Default: runs/TASK-AGENT-DEMOS-SEED."""
    force: bool = False
    """Replace an agent in the folder."""
    wandb: str | None = None
    """Project of Weights & Biases to log losses and scores to; needs wandb. Default: none."""
    config: Path | None = None
    """YAML file of options, such as the run.yaml of an earlier run; the command line overrides it. Default: none."""

    dataset: ClassVar[DemoDataset]  # set by `form`, which also adds the fields `model` and `training`

    @classmethod
    def form(cls, arguments: list[str]) -> type[Train]:
        """Return the command with the options of the chosen agent, preset and demonstrations."""
        from pidm_nav.agents.registry import KINDS, find_part, signatures
        from pidm_nav.agents.train import choose_preset

        helping = bool({"-h", "--help"} & set(arguments))
        known = [word for word in arguments if word not in ("-h", "--help")]
        try:
            with redirect_stderr(io.StringIO()):
                chosen, others = tyro.cli(Choice, args=known, return_unknown_args=True)
        except SystemExit:  # the error is shown when all arguments are parsed
            chosen, others, helping = Choice(), [], True
        find_part("agent", chosen.agent)  # raises ValueError before anything is loaded
        demos = chosen.demos
        if demos is None and chosen.task is not None and find_task(chosen.task).name in PAPER_TASKS:
            demos = f"{find_task(chosen.task).name}/human-like"
        if demos is None and helping:
            demos = "maze/human-like"
        if demos is None:
            check_options(others)  # a misspelled --task or --demos is lacking
            lacking = f"the package has no demonstrations of {chosen.task}" if chosen.task else "no task is given"
            raise ValueError(f"{lacking}: give --demos, such as a file of `pidm-nav record` or `pidm-nav collect`")
        dataset = load_demos(demos)
        given: dict[str, Any] = {"frames": chosen.frames, "steps": chosen.steps}  # other defaults depend on these
        settings = {name: value for name, value in given.items() if value is not None}
        preset = choose_preset(chosen.agent, dataset, chosen.preset, **settings)
        unprefixed: Any = tyro.conf.OmitArgPrefixes
        parts = {"model": preset.options, "training": preset.training}  # the titles of their panels in the help
        added = [(name, unprefixed[type(part)], field(default=part)) for name, part in parts.items()]
        about = [f"Every {kind}: {signatures(kind)}" for kind in KINDS]
        namespace = {"dataset": dataset, "__doc__": "\n\n".join([inspect.cleandoc(str(cls.__doc__)), *about])}
        return make_dataclass(cls.__name__, added, bases=(cls,), namespace=namespace, frozen=True)

    def run(self) -> None:
        """Train the agent."""
        from pidm_nav.agents.config import Preset
        from pidm_nav.agents.dagger import dagger
        from pidm_nav.agents.journal import WandbLog, import_wandb
        from pidm_nav.agents.train import STATE_FILE, UNFINISHED, train

        settings: Any = Preset(getattr(self, "model"), getattr(self, "training"))  # noqa: B009 (added by `form`)
        dataset, seed = self.dataset, settings.training.seed
        if self.task is not None and dataset.task != find_task(self.task).name:
            raise ValueError(f"the demonstrations are of {dataset.task}, not of {self.task}: leave --task out")
        if self.num_demos is not None:
            dataset = dataset.sample(self.num_demos, seed=seed)
        folder = self.out or Path("runs") / f"{dataset.task}-{self.agent}-{len(dataset)}-{seed}"
        more: Any = {"failed": self.failed}
        if self.idm_demos == "random":
            check_number("--random-play-steps", self.random_play_steps, 1, MAX_STEPS)
            first = random_play_seed(seed, self.random_play_steps)
            more["idm_data"] = played = collect_random_play(
                dataset.task, self.random_play_steps, first, **dataset.env_kwargs
            )
            say(f"collected {played.num_steps:,} transitions of random play in {counted(len(played), 'episode')}")
        files = {"predictor_data": self.predictor_demos, "idm_data": self.idm_demos}
        more |= {name: load_demos(file) for name, file in files.items() if file is not None and name not in more}
        began = time.perf_counter()
        cheap = find_task(dataset.task).has_2d_state and dataset[0].observations.ndim == 2
        rollouts = (10 if cheap else 0) if self.eval_episodes is None else self.eval_episodes
        more |= {"preset": settings, "out": folder, "overwrite": self.force, "progress": True}
        more |= {"device": self.device, "eval_episodes": rollouts}
        log = None
        if self.wandb is not None:
            import_wandb()
            log = WandbLog(self.wandb, options_of(self))
            more["on_log"] = partial(log, folder.name)
        if not self.dagger and self.dagger_expert is not None:
            raise ValueError("--dagger-expert is given without --dagger: add --dagger with the number of rounds")
        if console().is_terminal:
            say("Ctrl-C stops training; rerun the command to resume.", style="dim")
        try:
            if self.dagger:
                agent = dagger(self.agent, dataset, self.dagger, self.dagger_expert, **more)
            else:
                agent = train(self.agent, dataset, **more)
        except KeyboardInterrupt:
            saved = any((place / STATE_FILE).exists() for place in (folder, folder / UNFINISHED))
            every = counted(settings.training.save_every, "step")
            say(f"rerun the command to {'resume' if saved else f'start over: nothing is saved before {every}'}")
            raise
        except ValueError as error:  # the library names arguments, which have other names here
            sentence = str(error).replace("predictor_data", "--predictor-demos").replace("idm_data", "--idm-demos")
            raise ValueError(sentence) from error
        seconds = time.perf_counter() - began
        write_config(self, folder)
        if log is not None:  # otherwise W&B marks the run as failed
            log.close()
        learned = f"{self.agent} learned {dataset.task} from {counted(len(dataset), 'demonstration')}"
        say(f"{learned} ({dataset.num_steps:,} steps) in {seconds:.1f} s")
        say(f"saved to {folder}; next: {shell_command('evaluate', folder)}")
        if "future_use" in agent.description:
            use = agent.description["future_use"]
            say(f"future use: {use:.2f} (0 = ignores the future)")
            if use < LITTLE_USE:
                say("warning: this agent barely uses the predicted future and acts like BC: try --agent delta-pidm")


def check_options(words: Sequence[str]) -> None:
    """Raise ValueError for words that are an option of no agent, without knowing which one is trained."""
    from pidm_nav.agents.config import TrainConfig
    from pidm_nav.agents.registry import AGENTS

    own = [each.name for each in fields(Train)]
    others = {
        each.name for form in (TrainConfig, *(kind.config_class for kind in AGENTS.values())) for each in fields(form)
    }
    for word in words:
        name = word.removeprefix("--").removeprefix("no-").partition("=")[0]
        if word.startswith("--") and name.replace("-", "_") not in others:
            known = [f"--{each.replace('_', '-')}" for each in (*own, *others)]
            hint = suggestion(word.partition("=")[0], known, "pidm-nav train --help lists them")
            raise ValueError(f"{word} is not an option: {hint}")


@dataclass(frozen=True)
class Choice(Train):
    """The command with the options of the agent and of training that other defaults depend on."""

    frames: str | None = None
    steps: int | None = None
