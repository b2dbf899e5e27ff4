"""What the author of an adapter needs to test it: fakes, and one contract suite a port. Needs pytest."""
