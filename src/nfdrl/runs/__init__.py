"""The only owner of a run's folder: its layout, its checkpoints, reading it back, and the run itself."""
