"""Recording with a gamepad or the keyboard, and playing against an agent."""
