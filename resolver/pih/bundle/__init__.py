"""A finished bundle: reading its OCI layout, unpacking it, starting its worker, talking to it."""
