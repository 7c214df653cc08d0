"""What happened in episodes, and how good it was: any policy in any vector environment."""
