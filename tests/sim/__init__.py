"""Real nodes and the real client on virtual time: the product as it is, on loops, disks and a network that one seed decides about."""
