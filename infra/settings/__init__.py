"""Settings shared by several flows, and the description of a setting."""
