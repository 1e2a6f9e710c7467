"""Writing records to Kafka, and whom a failure is of."""
