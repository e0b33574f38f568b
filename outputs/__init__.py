"""What a stack gives to others: the contract (`model`), what this program writes (`export`), and a typed
view of it (`stack_outputs`).
"""

from outputs.model import VERSION, MissingOutput
from outputs.stack_outputs import StackOutputs

__all__ = ["VERSION", "MissingOutput", "StackOutputs"]
