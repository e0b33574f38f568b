"""Records what a real vLLM does with the arguments of this program. The emulator's stub is compared with it."""
