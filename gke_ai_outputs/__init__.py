"""The outputs of a gke-ai stack: the contract (`model`), and a typed view for other programs (`stack_outputs`).

Other teams install this folder alone, so it imports nothing else of the project.
"""

from gke_ai_outputs.model import VERSION, MissingOutput
from gke_ai_outputs.stack_outputs import StackOutputs

__all__ = ["VERSION", "MissingOutput", "StackOutputs"]
