"""The commands, one module for each family. `replicator.cli` wires them; nothing else imports them."""
