"""`eventlog serve`: options into a configuration, the configuration into a running node."""

import sys
from pathlib import Path
from typing import Any

import click

from eventlog_cli.conventions import SERVER_DEFAULT, common_options
from eventlog_cli.importing import Importing
from eventlog_cli.output import note
from eventlog_cli.parameters import SIZE


@click.command("serve")
@click.option("--data", type=click.Path(file_okay=False), help="Data directory.  [default: ./eventlog-data]")
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.  [default: 127.0.0.1:7400]")
@click.option("--http", metavar="HOST:PORT", help="HTTP: caches, schemas, health, metrics.  [default: 127.0.0.1:7480]")
@click.option("--advertise", metavar="HOST:PORT", help="Address told to clients and nodes.  [default: that of --listen]")
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A node of the cluster to become a member of; repeatable.")
@click.option("--join-token-file", metavar="FILE", help="A text that lets nodes of other hosts join; needs the same one at both.")
@click.option("--node-name", metavar="NAME", help="Name of this node.  [default: HOST-PORT]")
@click.option("--host-label", metavar="LABEL", help="Host that this node fails with; replicas avoid sharing one.  [default: its own]")
@click.option("--rack", metavar="LABEL", help="Rack that this node fails with; replicas avoid sharing one.  [default: its own]")
@click.option("--weight", type=int, help="Share of the segments, compared with other nodes: 2 holds twice as many as 1.  [default: 1]")
@click.option("--gateway", is_flag=True, default=None, help="Own no segments, serve every request by passing it on.")
@click.option("--processes", type=int, help="Nodes to run, on ports and http ports that count up, with data in DATA/0, DATA/1, ...")
@click.option("--segments", type=int, help="Segments of a new cluster, a power of two.  [default: 256]")
@click.option("--replicas", type=int, help="Copies of each segment in a new cluster.  [default: 3]")
@click.option("--durability", type=click.Choice(["fsync"]), help="What a write waits for.  [default: fsync]")
@click.option(
    "--meta",
    metavar="LOCATION",
    help="sqlite:PATH, etcd://HOST:PORT,... or managed-etcd: the first 3 nodes run one (managed-etcd:5: the first 5)."
    "  [default: sqlite:DATA.meta/meta.db]",
)
@click.option(
    "--disk-reserve", "disk_reserve_bytes", type=SIZE, help="Free space below which writes are refused; merging uses it.  [default: 1GiB]"
)
@click.option(
    "--column-files", "column_files_bytes_max", type=SIZE, help="Space for history laid out for filters, 0 for none.  [default: 1GiB]"
)
@click.option("--value-max", "value_bytes_max", type=SIZE, help="Largest value taken.  [default: 1MiB]")
@click.option(
    "--connections-max",
    type=int,
    metavar="N",
    help="Most connections at once; never more than a quarter of the files that the process may have open.  [default: 4096]",
)
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond loopback without TLS and users.")
@click.option("--accept-data-loss", is_flag=True, default=None, help="Once: go on with what is left of data that nobody else holds.")
@click.option("--ready-file", type=click.Path(dir_okay=False), help="File to write when the node is ready: its addresses as JSON.")
@click.option("--config", "config_file", type=click.Path(), help="TOML file with these options; those given here win.")
@common_options
def command(config_file: str | None, **options: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    The first node makes a cluster; others become members of it with `--join`, and need no `--join` to come back.
    Options are also read from the environment (EVENTLOG_NODE_DATA, EVENTLOG_NODE_LISTEN, ...) and from a TOML file.
    """
    # neither at the top: `serve --help` and completion need no node; and most of a second goes by until one is loaded
    with Importing():
        from eventlog.node.config import load_config  # noqa: PLC0415

    config = load_config(options, file=Path(config_file) if config_file else None)
    note(f"starting a node on {config.data}")
    with Importing():
        from eventlog.assemble import serve, supervise  # noqa: PLC0415

    if config.processes == 1:
        serve(config, on_ready=_say_what_is_next)
    elif code := supervise(config, command=[sys.executable, "-m", "eventlog_cli", "serve"]):
        raise click.exceptions.Exit(code)


def _say_what_is_next(address: str) -> None:
    server = "" if address == SERVER_DEFAULT else f" --server {address}"
    note(f"ready at {address}; in another terminal: eventlog cache create orders{server}")
