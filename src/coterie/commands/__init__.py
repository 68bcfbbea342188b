"""The commands, by what they are about. Torch is imported only inside them, where it is needed."""
