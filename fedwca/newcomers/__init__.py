"""Models for clients that come when training is over."""
