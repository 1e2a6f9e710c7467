"""Which rights each command needs in Kafka, in S3 and in SQS: a table, and the forms in which it is applied."""
