"""The services, built of their parts."""
