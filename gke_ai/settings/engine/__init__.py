"""What an engine gets from a server: its command line, and how it reads its arguments."""
