"""Commands of `pidm-nav`: one dataclass per command, whose fields are its options."""

from importlib import import_module
from typing import Any

GROUPS: dict[str, dict[str, str]] = {  # words of each command, and its dataclass as module:class
    "Start here": {
        "quickstart": "experiments:Quickstart",
        "doctor": "doctor:Doctor",
        "play": "record:Play",
        "studio": "studio:Studio",
        "completion": "completion:Completion",
    },
    "Make demonstrations": {
        "record": "record:Record",
        "collect": "demos:Collect",
        "demos info": "demos:Info",
        "demos convert": "demos:Convert",
        "demos edit": "demos:EditCommand",
        "demos replay": "demos:Replay",
        "demos plot": "demos:Plot",
    },
    "Train and evaluate": {
        "train": "train:Train",
        "evaluate": "evaluate:Evaluate",
        "agents": "evaluate:Agents",
        "export": "evaluate:Export",
        "hub push": "evaluate:Push",
    },
    "Reproduce the paper": {
        "sweep": "experiments:SweepCommand",
        "report": "experiments:ReportCommand",
    },
    "Understand why": {
        "advise": "analysis:Advise",
        "analyze predictor": "analysis:PredictorErrors",
        "analyze horizon": "analysis:Horizon",
        "analyze theory": "analysis:Theory",
    },
}
COMMANDS = {words: reference for group in GROUPS.values() for words, reference in group.items()}


def load_command(words: str) -> Any:
    """Import the dataclass of a command."""
    module, _, name = COMMANDS[words].partition(":")
    return getattr(import_module(f"pidm_nav.commands.{module}"), name)
