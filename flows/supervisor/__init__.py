"""`shockwave up`: the server with all that it serves, and the processes beside it."""
