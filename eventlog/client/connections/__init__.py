"""Roads to the nodes: connections that heal, requests tried again, and who leads what."""
