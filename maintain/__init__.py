"""Tools of maintainers: generated pages and pictures, speeds, times, faults, records, sizes."""
