"""Environments: serving them and driving them from elsewhere."""
