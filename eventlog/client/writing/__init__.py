"""The write road: calls become frames, frames go to the primaries of their segments, and answers come back."""
