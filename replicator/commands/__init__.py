"""The commands, one module for each family. `replicator.main` wires them; nothing else imports them."""
