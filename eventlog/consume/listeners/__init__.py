"""Registered listeners, as decisions: what is kept of one, how far it has acknowledged, and what retention must leave it. Pure.

The entries are in the internal cache `__listeners`, one route a listener: its record, and behind it its position if it is durable. The
primary of that route keeps the position in memory and writes it down now and then (`eventlog/node/consumers/listener_home.py`).
"""
