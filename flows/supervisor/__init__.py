"""`shockwave up`: the web server, and the processes that it needs."""
