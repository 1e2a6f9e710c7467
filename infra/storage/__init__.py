"""Object stores and notification queues."""
