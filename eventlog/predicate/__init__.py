"""Filters: a condition in SQL or an installed factory, checked, and compiled to something that judges columns of events."""
