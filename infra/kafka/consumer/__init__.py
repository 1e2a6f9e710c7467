"""Reading records of Kafka, in a consumer group or outside one."""
