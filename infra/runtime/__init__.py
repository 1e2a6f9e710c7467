"""What every process needs: time, threads, health, logs, metrics."""
