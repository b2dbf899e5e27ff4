"""What is told of an exception that an operator's own code has raised: a filter, a task, a scope."""

_CHARACTERS_MAX = 1_000


def foreign(error: BaseException) -> str:
    """Return its class and the beginning of its text; the class alone where it cannot say more."""
    name = type(error).__name__
    try:
        return f"{name}: {str(error)[:_CHARACTERS_MAX]}"
    except BaseException:  # noqa: BLE001 -- its text is that code's, too
        return name
