"""Copies of segments: sent, received, compared, mended, trimmed, taken over."""
