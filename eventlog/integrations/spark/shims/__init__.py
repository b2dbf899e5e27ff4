"""What Spark looks for outside any package; each is a top-level module of the installed distribution."""
