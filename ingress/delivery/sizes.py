"""What the memory of a delivering process is made of: the same in ingress and in a restore."""

from __future__ import annotations

from datetime import timedelta

MIB = 1024 * 1024
RUN_BYTES = 8 * MIB  # what egress encodes at once: a row group at level 0 is one run or two
RUN_AGE = timedelta(milliseconds=500)  # small segments are delivered as they are read, however many wait behind them
DELIVERY_WIDTH = 8  # segment slices read and produced at a time
SMALL_WIDTH = 64  # small ones besides: of segments of a second, one round takes those of as many partitions
READING_THREADS = 16  # open segments at once: a store answers after tens of milliseconds
DECODING_THREADS = 2  # of them decode at once
PRODUCER_BYTES = 32 * MIB
# of a backlog in one transaction; each ends with a wait until the client's queue is empty
ROUND_RECORDS, ROUND_BYTES = 400_000, 96 * MIB
