"""What commands share: options, tables, exit codes."""
