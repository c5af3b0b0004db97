"""Jobs in containers on Docker hosts."""
