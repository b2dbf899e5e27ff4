"""A connection greeted as a member's, by whoever can read the metadata: to say on it what no member would."""

from eventlog.control.metastores.location import Location, open_metastore
from eventlog.control.records import CLUSTER_KEY, IDENTITY_KEY, ClusterIdentity, ClusterKey, NodeRecord, decode, node_key
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION, Greeting, PeerIdentity
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


async def greet_as_member(
    connection: Connection, location: Location, number: int, *, as_number: int = 0, incarnation: str = ""
) -> PeerIdentity:
    """Prove to be member `number` of the cluster whose metadata are at `location`; return who answered.

    With the right key, and under another number or incarnation if they are named.
    """
    store = await open_metastore(location, create=False)
    try:
        items = {key: await store.get(key) for key in (IDENTITY_KEY, CLUSTER_KEY, node_key(number))}
    finally:
        await store.close()
    found = {key: item.value for key, item in items.items() if item is not None}
    cluster = decode(found[IDENTITY_KEY], ClusterIdentity, where=IDENTITY_KEY).cluster
    record = decode(found[node_key(number)], NodeRecord, where=node_key(number))
    key = decode(found[CLUSTER_KEY], ClusterKey, where=CLUSTER_KEY).key
    me = PeerIdentity(cluster=cluster, number=as_number or number, incarnation=incarnation or record.incarnation)
    nonce = b"n" * NONCE_BYTES
    hello = pb.PeerHello(cluster=cluster, number=me.number, incarnation=me.incarnation, version=PEER_VERSION, nonce=nonce)
    answer = (await connection.request(Message(peer_hello=hello), timeout_ms=20_000)).message.peer_hello_answer
    greeting = Greeting(
        dialer=me,
        answerer=PeerIdentity(cluster=cluster, number=answer.number, incarnation=answer.incarnation),
        dialer_nonce=nonce,
        answerer_nonce=answer.nonce,
    )
    assert greeting.proved("answerer", answer.proofs, [key]) == key
    await connection.request(Message(peer_proof=pb.PeerProof(proofs=greeting.proofs("dialer", [key]))), timeout_ms=20_000)
    return greeting.answerer
