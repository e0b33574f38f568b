"""The outputs of a stack: the contract (`model`), the export (`export`), and a typed view for other programs
(`stack_outputs`).
"""

from outputs.model import VERSION, MissingOutput
from outputs.stack_outputs import StackOutputs

__all__ = ["VERSION", "MissingOutput", "StackOutputs"]
