"""The write road: from waiting frames to a group on disk, applied, and its answers."""
