"""Moving messages: addresses, the two doors of one port, channels and sessions."""
