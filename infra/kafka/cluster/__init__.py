"""A cluster seen from outside: topics, groups, logs."""
