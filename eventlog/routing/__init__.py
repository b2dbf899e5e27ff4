"""Both paths, step 1: where a request goes, when it is tried again, how it is numbered.

Pure decisions for the client's shell: key -> segment -> address (`addresses`, `routes`), retry or give up (`retry`), and the
producer's window (`window`, `verdict`), which keeps blocks numbered without a gap so that a block sent twice is written once. No
socket, no clock, no chance: they come as arguments.
"""
