"""Scans of the words of documents, whose clusters are topics."""
