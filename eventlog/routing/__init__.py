"""Write path, step 1 of 7 (and the first of the read path): where a request goes, when it is tried again, how it is numbered.

Pure decisions for the client's shell: key -> segment -> address, retry or give up, and the producer's window, which keeps blocks
numbered without a gap so that a block sent twice is written once. No socket, no clock, no chance: they come as arguments.
"""
