"""What somebody may do to a warehouse who can write to its folder, and whether it is found."""
