"""What a cluster did, by its log, beside what policies would have done with the same jobs."""
