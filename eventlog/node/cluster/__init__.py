"""Being one of several: members, leaders, the controller, operators, and the processes of one host."""
