"""The 3D world: tasks in a game engine, seen over the walker's shoulder; needs the extra `3d`."""
