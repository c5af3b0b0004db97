"""Jobs in containers on Docker hosts, reached by a local socket, TCP or ssh."""
