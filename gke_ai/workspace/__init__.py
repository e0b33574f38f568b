"""What every command knows of a stack: its state, its configuration file, the emulator's entry, prices."""
