"""The demo told step by step: start, load, read, kill, restart, check."""

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog import blocking
from eventlog.errors import Unavailable
from eventlog_cli.demo.checks import Check, Seen, Write, check_log, check_rest, check_state
from eventlog_cli.demo.input import BATCH_ROWS, Input
from eventlog_cli.demo.process import LISTEN_DEFAULT, NodeProcess
from eventlog_cli.demo.writers import Writers
from eventlog_cli.loading.loader import Loader
from eventlog_cli.loading.rows import Batch
from eventlog_cli.loading.target import CacheTarget
from eventlog_cli.output import print_text, table
from eventlog_cli.progress import Progress
from eventlog_cli.quantities import format_seconds

if TYPE_CHECKING:
    from eventlog.blocking import Cache, Client

WRITERS = 4
WRITERS_CACHE = "demo-writers"
WRITES_BEFORE_KILL = 300  # acknowledged, of each writer
WRITES_AFTER_RESTART = 50
WRITING_SECONDS_MAX = 20.0
TIMEOUT_MS = 20_000
