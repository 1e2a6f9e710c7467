"""The source side of the control plane: what the cluster has, written to the bucket."""
