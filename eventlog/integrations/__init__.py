"""What joins a node with other systems; each needs an extra of its own, and is imported only where it is asked for."""
