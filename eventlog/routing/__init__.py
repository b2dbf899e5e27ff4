"""Both paths, step 1: where a request goes, when it is tried again, how it is numbered.

Pure decisions for the client's shell: key -> segment -> node (`routes`, `addresses`), retry or give up (`retry`), and the producer's
windows (`window`), one for each primary (`lanes`), which keep blocks numbered without a gap, so that a block sent twice is written once,
also when its segment has another primary meanwhile. No socket, no clock, no chance: they come as arguments.
"""
