"""The 2D world: maps, dynamics, single and vector environments, and rendering."""
