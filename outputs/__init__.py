"""What a stack gives to others: the contract (`model`), what this program writes (`produced`), a view (`reference`)."""

from outputs.model import VERSION, MissingOutput
from outputs.reference import StackOutputs

__all__ = ["VERSION", "MissingOutput", "StackOutputs"]
