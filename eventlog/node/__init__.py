"""The node: the shell that waits, reads and writes, and calls the pure cores in between. Open `path.py` first."""
