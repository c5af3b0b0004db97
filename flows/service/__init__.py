"""`shockwave up`: a Prefect server, and the deployments that can be started from its UI."""
