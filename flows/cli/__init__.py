"""The commands, by what they are about. Heavy imports wait until a command needs them."""
