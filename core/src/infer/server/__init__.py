"""The OpenAI-compatible HTTP server: protocol, routes, and the life of the process."""
