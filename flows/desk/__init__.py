"""What users ask of a service, and are told."""
