"""What components and engines share: interfaces, the values they exchange, networks, and tensor files."""
