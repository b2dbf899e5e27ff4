"""Reading by something else than an id."""
