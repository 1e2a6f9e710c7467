"""Used by every process: time, threads, health, logs, metrics."""
