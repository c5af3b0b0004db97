"""Jobs on a cluster that Slurm runs."""
