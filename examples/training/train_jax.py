"""Data-parallel training with JAX that continues where a preempted run stopped.

Every process computes the gradient of its part of the batch, and JAX adds up the parts. So all processes hold the same
parameters, process 0 saves them, and another number of processes can continue the run.

    CHECKPOINT_DIR=/tmp/run python train_jax.py --steps 200           one process
    JAX_COORDINATOR_ADDRESS=HOST:PORT JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=0 …     each of several processes
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from checkpoints import EXIT_SAVED, Checkpoints, StopSignal, read_marker

CONTEXT = 32  # characters that the model sees to predict the next one
CHARACTERS = 128  # ASCII


def main() -> int:
    """Trains, and returns the exit status."""
    options = arguments()
    connect()
    # Set after `connect`, because JAX handles SIGTERM too.
    stop = StopSignal()
    checkpoints = Checkpoints.from_environment()

    # The state is the same on every device; the batch is divided among them.
    mesh = Mesh(np.array(jax.devices()), ("data",))
    replicated, divided = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    if options.batch % jax.device_count():
        sys.exit(f"--batch is {options.batch}, which {jax.device_count()} devices can't share equally.")
    # On GPUs, XLA adds up in another order in each run unless this is set, so two runs would differ.
    exact = {"xla_gpu_deterministic_ops": True} if jax.default_backend() == "gpu" else None
    update = jax.jit(training_step, out_shardings=replicated, compiler_options=exact)

    state, begin = restore(checkpoints, first_state(options.seed, options.width))
    state = jax.device_put(state, replicated)
    text = np.frombuffer(options.text.read_bytes(), np.uint8) % CHARACTERS
    started = time.monotonic()
    for step in range(begin + 1, options.steps + 1):
        batch = jax.make_array_from_process_local_data(divided, my_part(text, options, step))
        state, loss = update(state, batch, options.learning_rate)
        if jax.process_index() == 0:
            # repr keeps every digit, so that two runs can be compared exactly.
            print(f"step {step} loss {float(loss)!r}", flush=True)
        stopping = step < options.steps and any_process(stop.received)
        if stopping or step % options.checkpoint_every == 0 or step == options.steps:
            save(checkpoints, step, state)
        if stopping:
            print(f"process {jax.process_index()} stops after step {step}, which is saved", flush=True)
            return EXIT_SAVED
    if jax.process_index() == 0:
        rate = (options.steps - begin) * options.batch * CONTEXT / (time.monotonic() - started)
        print(f"finished after step {options.steps}: {rate:.0f} characters per second", flush=True)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200, help="steps of the whole run")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--batch", type=int, default=32, help="examples in a step, of all processes together")
    parser.add_argument("--width", type=int, default=256, help="width of the hidden layer")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    # This program is its own data, so that nothing has to be downloaded.
    parser.add_argument("--text", type=Path, default=Path(__file__), help="text to learn")
    return parser.parse_args()


def connect() -> None:
    """Connects the processes: by the variables of the container, or on a TPU slice by those that GKE sets."""
    # SIGTERM is handled here, not by JAX's own preemption service.
    jax.config.update("jax_enable_preemption_service", False)
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        # JAX reads the address itself, but neither the number of processes nor the place of this one:
        # https://github.com/jax-ml/jax/blob/main/jax/_src/distributed.py
        jax.distributed.initialize(
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
            cluster_detection_method="deactivate",
            shutdown_timeout_seconds=10,  # a process that fails must not wait long for the others, which wait for it
        )
    elif "TPU_WORKER_HOSTNAMES" in os.environ:
        jax.distributed.initialize()


def first_state(seed: int, width: int) -> dict[str, Any]:
    """Parameters with random values that depend on the seed alone, and Adam's state."""
    random = np.random.default_rng(seed)
    parameters = {
        "embedding": random.standard_normal((CHARACTERS, 16), np.float32),
        "hidden": random.standard_normal((CONTEXT * 16, width), np.float32) / np.float32((CONTEXT * 16) ** 0.5),
        "output": random.standard_normal((width, CHARACTERS), np.float32) / np.float32(width**0.5),
    }
    zeros = jax.tree.map(np.zeros_like, parameters)
    return {"parameters": parameters, "mean": zeros, "variance": zeros, "step": np.zeros((), np.int32)}


def loss_of(parameters: dict[str, Any], batch: Any) -> Any:
    """Cross-entropy of the character that follows each window."""
    window = parameters["embedding"][batch[:, :-1]].reshape(batch.shape[0], -1)
    scores = jnp.tanh(window @ parameters["hidden"]) @ parameters["output"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), batch[:, -1:], axis=1))


def training_step(state: dict[str, Any], batch: Any, rate: float) -> tuple[dict[str, Any], Any]:
    """One step of Adam. JAX inserts the sum over all processes, because the batch is divided and the state is not."""
    loss, gradient = jax.value_and_grad(loss_of)(state["parameters"], batch)
    step = state["step"] + 1
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["mean"], gradient)
    variance = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new**2, state["variance"], gradient)
    parameters = jax.tree.map(
        lambda old, m, v: old - rate * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8),
        state["parameters"],
        mean,
        variance,
    )
    return {"parameters": parameters, "mean": mean, "variance": variance, "step": step}, loss


def my_part(text: np.ndarray[Any, Any], options: argparse.Namespace, step: int) -> np.ndarray[Any, Any]:
    """This process's part of a step's batch.

    The whole batch follows from seed and step, so a resumed run sees the same data in the same order, also with another
    number of processes. A checkpoint needs to hold nothing about the data.
    """
    starts = np.random.default_rng([options.seed, step]).integers(len(text) - CONTEXT, size=options.batch)
    part = options.batch // jax.process_count()
    mine = starts[jax.process_index() * part : (jax.process_index() + 1) * part]
    return np.stack([text[start : start + CONTEXT + 1] for start in mine]).astype(np.int32)


def any_process(received: bool) -> bool:
    """Whether any process received SIGTERM. All learn it after the same step, and so stop and save together."""
    return bool(np.any(multihost_utils.process_allgather(np.array(received))))


def save(checkpoints: Checkpoints, step: int, state: dict[str, Any]) -> None:
    """Process 0 saves the state; the others wait for it."""
    if jax.process_index() == 0:
        arrays = {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(state))}
        # savez passes the arrays on as it writes them, so no copy of the whole file is in memory.
        checkpoints.save(step, {"state.npz": lambda file: np.savez(file, **arrays)}, jax.process_count())
    multihost_utils.sync_global_devices(f"saved {step}")


def restore(checkpoints: Checkpoints, state: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The newest complete checkpoint, else the first state. Process 0 decides, so that all processes read the same."""
    newest = checkpoints.resume() if jax.process_index() == 0 else None
    padded = np.frombuffer((str(newest.folder).encode() if newest else b"").ljust(1024, b"\0"), np.uint8)
    path = bytes(multihost_utils.broadcast_one_to_all(padded)).rstrip(b"\0")
    if not path:
        return state, 0
    checkpoint = read_marker(Path(path.decode()))
    with np.load(checkpoint.path("state.npz")) as arrays:
        leaves = [arrays[str(number)] for number in range(len(arrays))]
    print(f"process {jax.process_index()} resumed from step {checkpoint.step}", flush=True)
    return jax.tree.unflatten(jax.tree.structure(state), leaves), checkpoint.step


if __name__ == "__main__":
    sys.exit(main())
