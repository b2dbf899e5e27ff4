"""`python -m eventlog_cli` is the `eventlog` command."""

from eventlog_cli.main import main

main()
