"""From files, presets and options to a checked configuration, and from that to composed methods."""
