"""What servers and runs share: where their pods run."""
