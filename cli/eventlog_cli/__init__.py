"""The command line: one click module per noun; it reaches the cluster through `eventlog.client` and nothing below."""
