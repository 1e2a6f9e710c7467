"""What every client of Kafka shares: properties, errors, encoding."""
