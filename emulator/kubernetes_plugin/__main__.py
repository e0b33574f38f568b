from __future__ import annotations

from emulator.kubernetes_plugin.provider import KubernetesProvider
from emulator.plugin import serve

serve(KubernetesProvider())
