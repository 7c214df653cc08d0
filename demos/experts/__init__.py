"""Who demonstrates: the A* planner, the human-like player, the walker in 3D."""
