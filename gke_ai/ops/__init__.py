"""What a person runs beside `pulumi`: status, smoke, recover, down. For any stack, on Google Cloud or the emulator."""
