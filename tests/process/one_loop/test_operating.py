"""What an operator changed is known at every node when he is answered: the next question may go to any of them."""

from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.cluster import Cluster, with_cluster


async def change(cluster: Cluster, index: int, asked: pb.ChangeCluster) -> None:
    connection = await connect("127.0.0.1", cluster.nodes[index].port)
    assert (await connection.request(Message(change_cluster=asked), timeout_ms=30_000)).message.change_cluster_answer.commits
    connection.close()
    await connection.wait_closed()


def test_who_is_drained_and_who_no_more(tmp_path):
    async def act(cluster: Cluster) -> None:
        drained = cluster.up[2]
        name = drained.view.members[drained.number].name
        for index in range(3):
            for cancel in (False, True):
                await change(cluster, index, pb.ChangeCluster(drain=pb.DrainNode(node=name, cancel=cancel)))
                assert [node.view.members[drained.number].draining for node in cluster.up] == 3 * [not cancel]

    with_cluster(tmp_path, act)


def test_who_is_removed(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.nodes[2].kill()
        number = cluster.nodes[2].node.number
        name = cluster.up[0].view.members[number].name
        await change(cluster, 0, pb.ChangeCluster(remove=name))
        assert [number in node.view.members for node in cluster.up] == [False, False]

    with_cluster(tmp_path, act)
