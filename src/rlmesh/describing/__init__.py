"""Describing: what can be known of an env or model without running it."""

from rlmesh.describing.envelope import (
    DESCRIBE_METADATA_KEY,
    DESCRIBE_SCHEMA_VERSION,
    describe,
    describe_json,
)

__all__ = ["DESCRIBE_METADATA_KEY", "DESCRIBE_SCHEMA_VERSION", "describe", "describe_json"]
