"""Roads to the nodes: connections that heal, requests tried again, and which node leads what."""
