"""The tasks in a 3D game engine, seen over the walker's shoulder; needs the extra `3d`."""
