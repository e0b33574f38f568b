from __future__ import annotations

from emulator.pulumi.kubernetes.provider import KubernetesProvider
from emulator.pulumi.plugin import serve

serve(KubernetesProvider())
