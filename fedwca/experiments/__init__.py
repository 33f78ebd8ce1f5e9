"""From a configuration to numbers: composing methods, running trials, keeping what they say."""
