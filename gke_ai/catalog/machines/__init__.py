"""Machine types with their GPUs, TPUs, disks, zones and capacity modes."""
