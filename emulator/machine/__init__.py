"""What the emulator uses of this machine: paths, processes, progress, certificates."""
