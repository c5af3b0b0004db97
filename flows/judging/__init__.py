"""What is published or true, and how near this comes to it."""
