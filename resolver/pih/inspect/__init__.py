"""What is there: the host (doctor) and bundles (inspect). Reads, decides nothing."""
