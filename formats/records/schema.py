"""The Arrow schema of records, used by every component."""

from __future__ import annotations

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),  # any int64: never convert it to datetime
        pa.field("timestamp_type", pa.int8(), nullable=False),  # Kafka's: −1 none, 0 CreateTime, 1 LogAppendTime
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # null = none; order and duplicates are kept
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False))),
    ]
)

NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
