"""Commands. Importing any of these modules imports no torch."""
