"""Jobs in containers on Docker hosts, reached by local socket, TCP or ssh."""
