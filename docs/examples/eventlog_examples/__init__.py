"""What operators may install on nodes, one of each: a filter, a scope of iterations, a task for `for_each`."""
