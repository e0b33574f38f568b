"""Commands of `emulator/run` for one thing in the emulated cloud."""
