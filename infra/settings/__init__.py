"""Settings that several flows share, and what every setting is made of."""
