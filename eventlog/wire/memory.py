"""Memory for what a peer says is coming: reserved at once, there only as far as it is written."""


def reserve(size: int) -> memoryview:
    """Return writable memory of `size` bytes with any content, at an address that is a multiple of 8.

    Not zeroed, unlike a bytearray: a length that somebody claims costs nothing until the bytes are there.

    Raises:
        MemoryError: there is not even that much to reserve.
    """
    from numpy import empty, uint8  # noqa: PLC0415  # a client that sees neither large nor compressed frames starts without numpy

    return empty(size, uint8).data
