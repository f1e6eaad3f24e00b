"""Names and texts as SQL writes them."""


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
