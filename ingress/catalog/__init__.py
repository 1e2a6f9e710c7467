"""The target side of the control plane: makes this cluster's topics what the catalogue of the source says."""
