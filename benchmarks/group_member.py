"""A member of a consumer group, for the benchmark `group`: prints a line for every event read and for every commit."""

import asyncio
import sys
import time

import eventlog


async def main(session_timeout_ms: int, addresses: list[str]) -> None:
    """Read until it is killed. Lines: `r` or `c`, time, segment, offset; a commit's offset is the next one."""
    async with (
        eventlog.connect(*addresses) as client,
        client.cache("w").consumer("g", auto_commit=False, session_timeout_ms=session_timeout_ms) as consumer,
    ):
        async for batch in consumer.batches():
            pairs = list(zip(batch.segments.tolist(), batch.offsets.tolist(), strict=True))
            now = time.monotonic()
            sys.stdout.write("".join(f"r {now} {segment} {offset}\n" for segment, offset in pairs))
            await consumer.commit()
            now = time.monotonic()
            sys.stdout.write("".join(f"c {now} {segment} {offset + 1}\n" for segment, offset in dict(pairs).items()))
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
