"""Members of consumer groups, and of groups that share work."""
