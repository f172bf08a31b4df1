"""The workspace itself: packages, wheels, documents and what they promise."""
