"""The studio: record, train and watch in a browser (needs the `studio` extra)."""
