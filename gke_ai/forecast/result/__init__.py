"""Results of rehearsals and simulations as plain data, and their versioned JSON files."""
