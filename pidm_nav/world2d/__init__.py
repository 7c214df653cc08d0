"""The 2D world: maps, dynamics, the environment alone and in thousands, and its pictures."""
