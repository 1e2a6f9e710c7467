"""Processes that each run a service, watched by one that supervises them: on Spark its driver, else their parent."""
