"""Recording with a gamepad or the keyboard, and playing against an agent."""

import os

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame greets on stdout otherwise
