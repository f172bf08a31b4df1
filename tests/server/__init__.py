"""The server end to end: a real process on a real port, asked by real clients."""
