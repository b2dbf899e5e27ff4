"""The read roads: events, entries, state and then its tail, continuous queries, tasks."""
