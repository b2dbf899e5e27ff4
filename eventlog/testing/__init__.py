"""What whoever writes an adapter needs to test it: fakes, and one contract suite a port. Needs pytest."""
